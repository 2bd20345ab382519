"""Makes the contexts that the user's small functions are given, and calls those functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from handrail.core.commands import View
from handrail.errors import HandrailError
from handrail.model.context import WorkflowContext
from handrail.typed.jsonsafe import short_repr


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
    """What the processes of the run are found by: its id, and of which journal it is."""

    def of(self, view: View) -> WorkflowContext:
        """The context of a step."""
        return WorkflowContext(
            self.run_id,
            view.path,
            view.inputs,
            view.results,
            self.services,
            self.config,
            view.validation,
        )


async def built_context(given: Any, context: WorkflowContext) -> Mapping[str, Any]:
    """The mapping for an agent: as given, or as its builder makes it.

    Raises:
        ContextNotAMapping: the builder returned something else.
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
