"""Two recorded runs, step by step."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from handrail.model import events as ev
from handrail.model.history import COMPARED, RunDiff, StepDiff
from handrail.model.results import StepResult
from handrail.record.outputs import steps_of
from handrail.record.reading import ended
from handrail.record.results import tree_order
from handrail.record.run_record import Recorded
from handrail.typed.field_words import OF_ITS_RUN


def diff_of(
    a: Sequence[ev.Event], b: Sequence[ev.Event], identity: Callable[[Any], str]
) -> RunDiff:
    """The differences between two runs; ``identity`` gives equal values the same text."""
    of_a, of_b = _results(a), _results(b)
    steps = [_step(path, of_a.get(path), of_b.get(path), identity) for path in _merged(of_a, of_b)]
    return RunDiff(a[0].run_id, b[0].run_id, tuple(steps), _run_fields(a, b, identity))


def _results(history: Sequence[ev.Event]) -> dict[str, StepResult[Any]]:
    """The results of steps that count, in tree order, by path."""
    return {step.path: step for step in tree_order(*steps_of(Recorded(history)))}


def _merged(a: Iterable[str], b: Iterable[str]) -> list[str]:
    """All of ``a`` in order; each path of ``b`` alone comes behind the path it follows in ``b``."""
    known = dict.fromkeys(a)
    behind: dict[str | None, list[str]] = {}
    last: str | None = None
    for path in b:
        if path in known:
            last = path
        else:
            behind.setdefault(last, []).append(path)
    merged = behind.get(None, [])
    for path in known:
        merged += (path, *behind.get(path, ()))
    return merged


def _step(
    path: str,
    a: StepResult[Any] | None,
    b: StepResult[Any] | None,
    identity: Callable[[Any], str],
) -> StepDiff:
    if a is None or b is None:
        return StepDiff(path, "only_a" if b is None else "only_b", (), a, b)
    differ = tuple(
        name for name in COMPARED if not equal(getattr(a, name), getattr(b, name), identity)
    )
    return StepDiff(path, "changed" if differ else "same", differ, a, b)


def equal(a: Any, b: Any, identity: Callable[[Any], str]) -> bool:
    """True if two values are equal, apart from times and the like in results inside of them."""
    if a is b or identity(a) == identity(b):
        return True
    return bool(without(OF_ITS_RUN, a, identity) == without(OF_ITS_RUN, b, identity))


def without(left_out: Container[str], value: Any, leaf: Callable[[Any], Any] | None = None) -> Any:
    """The value as data in which handrail's own records lack these fields.

    ``leaf`` makes what is to be compared of a value that is no list, tuple, dict or such a record.
    """
    if is_dataclass(value) and type(value).__module__.startswith("handrail."):
        names = (field.name for field in fields(value) if field.name not in left_out)
        kept = {name: without(left_out, getattr(value, name), leaf) for name in names}
        return {"": type(value).__qualname__, **kept}
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return [type(items).__name__, *(without(left_out, item, leaf) for item in items)]
    if isinstance(value, dict):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {key: without(left_out, item, leaf) for key, item in pairs}
    return value if leaf is None else leaf(value)


def _run_fields(
    a: Sequence[ev.Event], b: Sequence[ev.Event], identity: Callable[[Any], str]
) -> tuple[str, ...]:
    ends = ended(a), ended(b)
    names = [
        name
        for name in ("status", "value", "error")
        if not equal(getattr(ends[0], name, None), getattr(ends[1], name, None), identity)
    ]
    return (*names, *(("denied",) if _denied(a) != _denied(b) else ()))


def _denied(history: Sequence[ev.Event]) -> set[tuple[str, str]]:
    """What sandboxes refused, by the path of the step."""
    return {(event.path, event.what) for event in history if isinstance(event, ev.SandboxDenied)}
