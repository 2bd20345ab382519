"""What a worker serves runs with: its workflows, and its executor's parts for their steps."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from handrail.codec.codec import Codec
from handrail.engine.parts import Parts
from handrail.errors import CodeNotFound
from handrail.model.definition import WorkflowDefinition
from handrail.secrets.masking import Mask
from handrail.secrets.values import SecretValues
from handrail.temporal.pinned_generators import PinnedGenerators
from handrail.typed.reference import resolve_name

Work = Callable[[], Awaitable[Any]]


class LocalWork:
    """Functions that only this process can run, each under a generated name. Mutable."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._numbers = itertools.count(1)

    def add(self, work: Work) -> str:
        """Keep a function; returns the name to ``take`` it by."""
        name = f"local {next(self._numbers)}"
        self._works[name] = work
        return name

    def take(self, name: str) -> Work | None:
        """Remove the function of this name and return it; None if there is none."""
        return self._works.pop(name, None)


@attrs.frozen
class Serving:
    """All that one worker's code needs; ``parts`` are those of an ``Executor``."""

    parts: Parts
    workflows: Mapping[str, WorkflowDefinition]
    codec: Codec
    secrets: SecretValues
    queue: str
    """The task queue of the runs."""
    home: str
    """The task queue that only workers on this machine, in this folder, poll."""
    identity: str = ""
    """The cluster, in the marks of processes that steps start."""
    local: LocalWork = attrs.field(factory=LocalWork)
    bodies: PinnedGenerators = attrs.field(factory=PinnedGenerators)

    @property
    def mask(self) -> Mask:
        """Hides secrets in what the cluster's own lists and pages show."""
        return Mask(self.secrets)

    def definition(self, name: str, where: str) -> WorkflowDefinition:
        """The served workflow of this name, else the one that ``where`` (``module:name``) names.

        Raises:
            CodeNotFound: ``where`` is not here, or is no workflow.
        """
        found = self.workflows.get(name)
        if found is not None:
            return found
        made: Any = resolve_name(where)
        definition = getattr(made, "definition", None)
        if not isinstance(definition, WorkflowDefinition):
            raise CodeNotFound(where, "it is no workflow")
        return definition
