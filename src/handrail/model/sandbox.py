"""What a launch may reach: the sandbox, and the variables that an author lets it see."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import attrs

from handrail.errors import DefinitionError, HandrailError, did_you_mean
from handrail.typed.jsonsafe import short_repr

InheritEnv: TypeAlias = 'Literal["safe", "all"] | Sequence[str]'
"""Which variables of this process a program sees: all, all but the secrets, or these alone."""
Network: TypeAlias = 'Literal["full", "none", True] | Sequence[str]'
"""What a program may connect to: anything, nothing, or hosts; True: those of its backend."""
Boundary: TypeAlias = "Sandbox | bool | None"
"""A sandbox; True: one that follows from the step. False: none, whatever an outer setting says."""

LAUNCH_OPTIONS = frozenset({"sandbox", "inherit_env"})
"""The options that every backend honours whose agent is a program of its own."""
_PATH = (str, os.PathLike)
_HOST = re.compile(
    r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?"
)


class SandboxUnavailable(HandrailError):
    """This machine cannot enforce the sandbox that a step asks for; nothing was started.

    ``why`` is what it lacks, ``advice`` what to do about it.
    """

    def __init__(self, why: str, advice: str = "") -> None:
        super().__init__(why, advice)
        self.why = why
        self.advice = advice

    def __str__(self) -> str:
        return f"no sandbox here: {self.why}. {self.advice}".strip()


def inherited_of(value: Any, what: str) -> Any:
    """A value of ``inherit_env=``, a list as a tuple.

    Raises:
        DefinitionError: it is none.
    """
    if value is None or value in ("safe", "all"):
        return value
    wanted = '"safe", "all" or a list of names of variables'
    return _listed(value, what, wanted, lambda name: isinstance(name, str) and "=" not in name)


def _listed(value: Any, what: str, wanted: str, fits: Callable[[object], bool]) -> tuple[Any, ...]:
    """The items of a list that all fit, and are not empty."""
    given: object = value
    is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    items = tuple(cast("Iterable[object]", value)) if is_list else ()
    if not is_list or not all(item and fits(item) for item in items):
        raise DefinitionError(f"{what} must be {wanted}, got {short_repr(value)}")
    return items


def boundary_of(value: Any, what: str) -> Any:
    """A value of ``sandbox=``.

    Raises:
        DefinitionError: it is none.
    """
    if value is None or isinstance(value, (bool, Sandbox)):
        return value
    raise DefinitionError(f"{what} must be True, False or Sandbox(...), got {short_repr(value)}")


def _paths(value: Any, what: str) -> tuple[str, ...]:
    paths = _listed(value, what, "a list of paths", lambda path: isinstance(path, _PATH))
    return tuple(map(os.fspath, paths))


def _network(value: Any, what: str) -> Any:
    if value is True or value in ("full", "none"):
        return value
    wanted = '"full", "none", True or a list of hosts'
    hosts = _listed(value, what, wanted, lambda host: isinstance(host, str))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise DefinitionError(
                f"{what}: {host!r} is no host. Write a name, such as 'pypi.org', "
                f"'*.pythonhosted.org' or 'localhost:8080', without a scheme or a path."
            )
    return hosts


@attrs.frozen(init=False)
class Sandbox:
    """A boundary that the kernel keeps around a program and all that it starts.

    - ``write``: paths that it may change beside what follows from its step: its working tree within
      ``writes=`` (a worktree of its own whole), a private ``/tmp``, and its own state. A relative
      path begins at its working folder; a folder that is missing is made.
    - ``hide``: paths that it cannot read, beside handrail's own and where people keep credentials.
    - ``network``: ``"full"``, ``"none"``, or a list of hosts (``"pypi.org"``, ``"*.example.com"``,
      ``"localhost:8080"``), to which those of its backend are added; True: these alone.
    - ``env``: which variables it inherits, as ``inherit_env`` says it (default: ``"safe"``).
    """

    write: tuple[str, ...]
    hide: tuple[str, ...]
    network: Network
    env: InheritEnv | None

    def __init__(
        self,
        write: Sequence[str | os.PathLike[str]] = (),
        hide: Sequence[str | os.PathLike[str]] = (),
        network: Network = "full",
        env: InheritEnv | None = None,
    ) -> None:
        whose = "of a Sandbox"
        self.__attrs_init__(
            _paths(write, f"write {whose}"),
            _paths(hide, f"hide {whose}"),
            _network(network, f"network {whose}"),
            inherited_of(env, f"env {whose}"),
        )

    if TYPE_CHECKING:  # attrs makes it; not every type checker knows

        def __attrs_init__(self, *values: Any) -> None: ...


DERIVED = Sandbox()


def chosen_sandbox(*settings: Boundary) -> Sandbox | None:
    """The sandbox of the first setting that is one or says whether there is one; None for none."""
    said = next((setting for setting in settings if setting is not None), None)
    return said if isinstance(said, Sandbox) else DERIVED if said else None


def sandbox_in(table: Mapping[str, Any]) -> Boundary:
    """The ``sandbox`` of a project's table: a table of the fields of ``Sandbox``, or true or false.

    Raises:
        DefinitionError: it is something else, or a field is wrong.
    """
    said = table.get("sandbox")
    if said is None or isinstance(said, bool):
        return said
    names = [field.name for field in attrs.fields(Sandbox)]
    for name in cast("Mapping[str, Any]", said):
        if name not in names:
            hint = did_you_mean([name], names) or f" It may have: {', '.join(names)}."
            raise DefinitionError(
                f"{table['file']}: [tool.handrail] sandbox has no {name!r}.{hint}"
            )
    return Sandbox(**said)
