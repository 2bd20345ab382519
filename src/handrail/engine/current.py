"""What an action can learn about the step that it runs in, and what contexts are made of."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeGuard, cast

import msgspec

from handrail.core.commands import View
from handrail.errors import HandrailError
from handrail.model.context import WorkflowContext
from handrail.model.dataclass import assembler, dataclass
from handrail.model.shapes import OwnTree
from handrail.typed.jsonsafe import short_repr

_context = assembler(WorkflowContext)


class OutsideStep(HandrailError, LookupError):
    """``current()`` was called where no step runs."""

    def __str__(self) -> str:
        return (
            "handrail.current() is for actions: functions that a step calls while it runs. "
            "Predicates, context builders, handlers and rollbacks are given a context instead; a "
            "workflow's own body has its inputs, and calls what needs more in a step."
        )


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Current(msgspec.Struct):
    """The running attempt: ``run_id``, ``path``, ``attempt`` (from 1), and more.

    ``interrupted``: an earlier process died, or was stopped, while this step ran. ``cancelled``
    turns true when the step is asked to stop: a thread cannot be killed, so it has to look.
    ``services`` and ``config`` are those of the executor. ``mask`` keeps secrets out of the log.
    ``tree`` is the step's worktree, if it has one.
    """

    run_id: str
    path: str
    attempt: int
    interrupted: bool = False
    cancelled: bool = False
    services: Mapping[str, Any] = _NOTHING
    config: Mapping[str, Any] = _NOTHING
    mask: Any = None
    """A ``Mask``, or None. Its class costs more to load than most programs need."""
    tree: OwnTree | None = None

    @property
    def cwd(self) -> str:
        """The folder that the step works in: in its ``.worktree()``, or the process's own."""
        here = os.getcwd()  # noqa: PTH109  # as it is
        return here if self.tree is None else self.tree.inside(here)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this step of this run, and after a crash."""
        return idempotency_key(self.run_id, self.path)

    @property
    def log(self) -> Any:
        """A structlog logger bound to run, path and attempt; it writes no secrets."""
        import structlog

        configured = structlog.get_config()["processors"]
        logger: Any = structlog.wrap_logger(
            None, processors=[self._without_secrets, *configured], logger_factory_args=("handrail",)
        )
        return logger.bind(run_id=self.run_id, path=self.path, attempt=self.attempt)

    def _without_secrets(
        self, _logger: Any, _method: str, said: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if self.mask is None:
            return said
        return {name: self.mask.value(value) for name, value in said.items()}

    def __repr__(self) -> str:
        return f"<step {self.path!r} of run {self.run_id}, attempt {self.attempt}>"


CURRENT: ContextVar[Current] = ContextVar("handrail_current")


def current() -> Current:
    """The attempt that this code runs in; for actions, in whichever thread or task they run.

    Raises:
        OutsideStep: no step is running here.
    """
    found = CURRENT.get(None)
    if found is None:
        raise OutsideStep
    return found


def idempotency_key(run_id: str, path: str) -> str:
    """A hash of run id and path, 32 hex digits."""
    import hashlib

    text = f"{run_id}\n{path}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class ContextNotAMapping(HandrailError, TypeError):
    """A context builder returned something that is no mapping of names."""

    def __init__(self, path: str, got: str) -> None:
        super().__init__(path, got)
        self.path = path
        self.got = got

    def __str__(self) -> str:
        return (
            f"the context builder of step {self.path!r} must return a mapping with names as keys, "
            f"got {self.got}"
        )


@dataclass(frozen=True, slots=True)
class Contexts:
    """What all contexts of one run share."""

    run_id: str
    services: Mapping[str, Any]
    config: Mapping[str, Any]
    mark: str = ""
    """The mark by which the run's processes are found: run id and identity of the journal."""
    check_name: Callable[[str, str], None] | None = None
    """Called with a step's path and the name that it asks for; raises if no step has that name."""

    def of(self, view: View) -> WorkflowContext:
        """The context of a step."""
        return _context(
            self.run_id,
            view.path,
            view.inputs,
            view.results,
            self.services,
            self.config,
            view.validation,
            self.check_name,
        )


async def built_context(given: Any, context: WorkflowContext) -> Mapping[str, Any]:
    """The context mapping of an agent: ``given`` itself, or what ``given`` builds.

    Raises:
        ContextNotAMapping: it is no mapping of names.
    """
    made = given
    if callable(given) and not isinstance(given, Mapping):
        made = given(context)
        if inspect.isawaitable(made):
            made = await made
    if not _is_context(made):
        raise ContextNotAMapping(context.path, short_repr(made, 200))
    return made


def _is_context(made: object) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(made, Mapping):
        return False
    return all(isinstance(name, str) for name in cast("Mapping[object, object]", made))
