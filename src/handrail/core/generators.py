"""Calls the functions of workflows, and closes generators completely."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from types import GeneratorType
from typing import Any

from handrail.errors import HandrailError
from handrail.model.definition import WorkflowDefinition

CLOSING_TURNS = 1000
"""How many steps a body may yield while it is being closed, before the core abandons it."""


class _YieldedWhileClosing(HandrailError):
    """A body yielded steps while it was being closed; they were dropped."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps

    def __str__(self) -> str:
        return (
            f"{self.steps} step{'s' * (self.steps != 1)} yielded while the workflow was being "
            f"closed, in a finally or except, did not run"
        )


def call(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> Any:
    """The generator of a workflow with these bound inputs.

    Raises:
        Exception: what the workflow's function raised.
    """
    bound = definition.signature.bind_partial()
    bound.arguments.update(inputs)
    return definition.function(*bound.args, **bound.kwargs)


def close(generator: Generator[Any, Any, Any]) -> BaseException | None:
    """Close a generator, and those it delegates to, until all have ended.

    Returns what it raised, or an error that counts the steps it yielded meanwhile, which are
    dropped. Python leaves a generator that yields during ``close`` suspended, and closes it again,
    loudly, when it is collected; so it is closed again here until it has ended.
    """
    assert isinstance(generator, GeneratorType)
    pending: list[GeneratorType[Any, Any, Any]] = [generator]
    raised: BaseException | None = None
    dropped = 0
    while pending:
        body = pending.pop()
        for _ in range(CLOSING_TURNS):
            if body.gi_frame is None:
                break
            pending.extend(_delegates(body))
            try:
                body.close()
            except BaseException as error:  # noqa: BLE001  # a body's finally may raise anything
                if body.gi_frame is None:  # pyright: ignore[reportUnnecessaryComparison]  # it ended
                    raised = raised or error
                else:
                    dropped += 1
    return _YieldedWhileClosing(dropped) if dropped else raised


def _delegates(
    generator: GeneratorType[Any, Any, Any],
) -> Iterator[GeneratorType[Any, Any, Any]]:
    """The generators that this one delegates to by ``yield from``, outermost first."""
    inner = generator.gi_yieldfrom
    while isinstance(inner, GeneratorType):
        yield inner
        inner = inner.gi_yieldfrom
