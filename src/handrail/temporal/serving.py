"""What a worker serves runs with: its workflows, and the parts of the executor of its steps."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from handrail.codec.codec import Codec
from handrail.engine.parts import Parts
from handrail.errors import CodeNotFound
from handrail.model.definition import WorkflowDefinition
from handrail.secrets.values import SecretValues
from handrail.temporal.kept_bodies import PinnedGenerators
from handrail.typed.reference import resolve_name

Work = Callable[[], Awaitable[Any]]


class LocalWork:
    """What is to be done in this process and cannot leave it, by a name. Mutable."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._numbers = itertools.count(1)

    def add(self, work: Work) -> str:
        """Keep it; its name."""
        name = f"local {next(self._numbers)}"
        self._works[name] = work
        return name

    def take(self, name: str) -> Work | None:
        """Remove the task that has this name, and return it; None if there is none."""
        return self._works.pop(name, None)


@attrs.frozen
class Serving:
    """All that the code of one worker knows. Its parts are those of an ``Executor``."""

    parts: Parts
    workflows: Mapping[str, WorkflowDefinition]
    codec: Codec
    secrets: SecretValues
    queue: str
    """The task queue of the runs."""
    home: str
    """The queue that only workers on this machine, in this folder, look at."""
    local: LocalWork = attrs.field(factory=LocalWork)
    bodies: PinnedGenerators = attrs.field(factory=PinnedGenerators)

    def definition(self, name: str, where: str) -> WorkflowDefinition:
        """The workflow of this name, whose code is ``where`` if it is not among those served.

        Raises:
            CodeNotFound: it is not here.
        """
        found = self.workflows.get(name)
        if found is not None:
            return found
        made: Any = resolve_name(where)
        definition = getattr(made, "definition", None)
        if not isinstance(definition, WorkflowDefinition):
            raise CodeNotFound(where, "it is no workflow")
        return definition
