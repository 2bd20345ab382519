"""How each kind of event is laid out in a record: what goes into its body, what is its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from operator import attrgetter
from typing import Any, TypeAlias, cast

from handrail.model import events as ev
from handrail.model.assemble import assembler
from handrail.model.launch import Launch
from handrail.model.results import RollbackError, StepResult, Usage

Body: TypeAlias = dict[str, Any]
Parts: TypeAlias = tuple[Body, Any, bool]
Row: TypeAlias = tuple[str, int, float]
"""Run, number and time of an event: its first three fields."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one kind of event is written and read.

    ``write`` gives the body, the user's value (None for none), and whether the body holds text that
    may say anything (an error, a reason). ``read`` may change the body that it gets. ``value`` is
    what the value is called, ``of`` whose it is; ``own``: it is an object of handrail's, or a dict
    by name, with the user's values inside; ``each``: it is a tuple of such. ``strict``: it is not
    written where its classes would not be found again by their names alone.
    """

    kind: str
    write: Callable[[Any], Parts]
    read: Callable[[Row, str, Body, Any], Any]
    value: str = ""
    of: Callable[[Any], str] = str
    own: bool = False
    each: bool = False
    strict: bool = False


_ROW = ("run_id", "seq", "at")
_EMPTIES: Mapping[str, Callable[..., Any]] = {"inputs": dict, "waiting": tuple}  # rather than None
_REQUIRED = object()


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else _REQUIRED


# -- fields that are no plain JSON -----------------------------------------------------------------


_USAGE = tuple(field.name for field in fields(Usage))
_LAUNCH = {field.name: _default(field) for field in fields(Launch)}


def _usage_body(usage: Usage) -> Body:
    body = {name: getattr(usage, name) for name in _USAGE}
    return {name: number for name, number in body.items() if number is not None}


def _usage(body: Body | None) -> Usage | None:
    return None if body is None else Usage(*map(body.get, _USAGE))


def _launch_body(launch: Launch) -> Body:
    items = ((name, getattr(launch, name)) for name in _LAUNCH)
    return {
        name: _usage_body(item) if type(item) is Usage else item
        for name, item in items
        if item != _LAUNCH[name]
    }


def _launch(body: Body) -> Launch:
    known: Body = {name: body[name] for name in _LAUNCH if name in body}
    for name in ("spent", "session_usage"):
        known[name] = _usage(known.get(name))
    return Launch(**known)


def _rollback_errors_body(errors: tuple[RollbackError, ...]) -> list[Body]:
    return [{"path": e.path, "error": e.error, "error_type": e.error_type} for e in errors]


def _rollback_errors(bodies: list[Body]) -> tuple[RollbackError, ...]:
    return tuple(RollbackError(b["path"], b["error"], b["error_type"]) for b in bodies)


_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "labels": dict,
    "next": _launch_body,
    "rollback_errors": _rollback_errors_body,
    "usage": _usage_body,
}
_RESTORED: Mapping[str, Callable[[Any], Any]] = {
    "labels": dict,
    "next": _launch,
    "rollback_errors": _rollback_errors,
    "usage": _usage,
    **dict.fromkeys(("error_bases", "signals", "notes", "superseded", "reused", "rerun"), tuple),
    **dict.fromkeys(("orphaned", "left_out"), tuple),
}


# -- kinds by their fields -------------------------------------------------------------------------


def _by_fields(
    kind: type[Any],
    value: str = "",
    *,
    of: Callable[[Any], str] = str,
    own: bool = False,
    talks: bool = True,
    strict: bool = False,
) -> Layout:
    """The layout of a kind whose body has its fields by their names; ``value`` is one of them."""
    every = {f.name: _default(f) for f in fields(kind) if f.name not in _ROW}
    writing = [
        (name, default, _WRITTEN.get(name))
        for name, default in every.items()
        if name not in {"path", value}
    ]
    required = frozenset(name for name, default in every.items() if default is _REQUIRED)
    restoring = [(index, _RESTORED[name]) for index, name in enumerate(every) if name in _RESTORED]
    empty = _EMPTIES.get(value)
    may_be_none = bool(value) and not own and every[value] is _REQUIRED
    has_path = "path" in every

    def write(event: Any) -> Parts:
        body: Body = {}
        for name, default, written in writing:
            item = getattr(event, name)
            if item is not default and item != default:
                body[name] = item if written is None else written(item)
        held = getattr(event, value) if value else None
        if empty is not None:
            held = empty(held) or None
        return body, held, talks

    def read(row: Row, path: str, body: Body, held: Any) -> Any:
        if has_path:
            body["path"] = path
        if held is not None or may_be_none:
            body[value] = held
        elif empty is not None:
            body[value] = empty()
        if not required.issubset(body):
            raise KeyError(*required.difference(body))
        items = [body.get(name, default) for name, default in every.items()]
        for index, restored in restoring:
            items[index] = restored(items[index])
        return assembler(kind)(*row, *items)

    each = value == "waiting"
    return Layout(kind.__name__, write, read, value, of, own, each, strict)


# -- kinds that are the end of something, with its result ------------------------------------------

# `path` and `name` are the event's and its last part; `output` is the record's value.
_RESULT_DEFAULTS = {field.name: _default(field) for field in fields(StepResult)}
_RESULT_BODY = {
    name: default
    for name, default in _RESULT_DEFAULTS.items()
    if name not in {"name", "path", "step_type", "status", "output", "duration_ms", "usage"}
}
_RESULT_RESTORING = [
    (index, _RESTORED[name]) for index, name in enumerate(_RESULT_DEFAULTS) if name in _RESTORED
]
_RESULT_USUALLY = (*_RESULT_BODY.values(), None)
_in_result_body = attrgetter(*_RESULT_BODY, "usage")


def _write_step_completed(event: ev.StepCompleted) -> Parts:
    result, composed = event.result, event.composed
    body = _result_body(result, event.path)
    if composed:
        body["composed"] = composed
    if event.took:
        body["took"] = event.took
    if event.left_out:
        body["left_out"] = event.left_out
    return body, None if composed else result.output, _talks(body)


def _read_step_completed(row: Row, path: str, body: Body, value: Any) -> ev.StepCompleted:
    composed, took, left_out = body.get("composed", ""), body.get("took", 0), _left_out(body)
    result = _result(path, body, value)
    return assembler(ev.StepCompleted)(*row, path, result, composed, took, left_out)


def _write_member_completed(event: ev.MemberCompleted) -> Parts:
    result, composed = event.result, event.composed
    body = _result_body(result, event.path)
    body["index"] = event.index
    if composed:
        body["composed"] = composed
    if event.left_out:
        body["left_out"] = event.left_out
    return body, None if composed else result.output, _talks(body)


def _read_member_completed(row: Row, path: str, body: Body, value: Any) -> ev.MemberCompleted:
    index, composed, left_out = body["index"], body.get("composed", ""), _left_out(body)
    result = _result(path, body, value)
    return assembler(ev.MemberCompleted)(*row, path, index, result, composed, left_out)


def _left_out(body: Body) -> tuple[str, ...]:
    return tuple(body.get("left_out", ()))


def _talks(body: Body) -> bool:
    return "error" in body or "traceback" in body


def _result_body(result: StepResult[Any], path: str) -> Body:
    """The fields of a result but its output; its name and path only if they are not the event's."""
    body: Body = {"step_type": result.step_type, "status": result.status}
    if result.path != path:
        body["result_path"] = result.path
    if result.name != path.rpartition("/")[2]:
        body["name"] = result.name
    if result.duration_ms:
        body["duration_ms"] = result.duration_ms
    unusual = _in_result_body(result)
    if unusual == _RESULT_USUALLY:
        return body
    for (name, default), item in zip(_RESULT_BODY.items(), unusual, strict=False):
        if item != default:
            body[name] = item
    if result.usage is not None:
        body["usage"] = _usage_body(result.usage)
    return body


def _result(path: str, body: Body, output: Any) -> StepResult[Any]:
    if "step_type" not in body or "status" not in body:
        raise KeyError(*{"step_type", "status"}.difference(body))
    body["output"] = output
    body["path"] = body.get("result_path", path)
    if "name" not in body:
        body["name"] = path.rpartition("/")[2]
    items = [body.get(name, default) for name, default in _RESULT_DEFAULTS.items()]
    for index, restored in _RESULT_RESTORING:
        items[index] = restored(items[index])
    return cast("Callable[..., StepResult[Any]]", assembler(StepResult))(*items)


# -- every kind ------------------------------------------------------------------------------------


def _step(event: Any) -> str:
    return f"step {event.path!r}"


def _layouts() -> dict[type, Layout]:
    return {
        ev.StepStarted: _by_fields(ev.StepStarted, "accepts", of=_step, talks=False),
        ev.StepCompleted: Layout(
            "StepCompleted",
            _write_step_completed,
            _read_step_completed,
            "output",
            _step,
            strict=True,
        ),
        ev.MemberStarted: _by_fields(ev.MemberStarted, talks=False),
        ev.MemberCompleted: Layout(
            "MemberCompleted",
            _write_member_completed,
            _read_member_completed,
            "output",
            lambda event: f"member {event.path!r}",
            strict=True,
        ),
        ev.WorkflowStarted: _by_fields(
            ev.WorkflowStarted,
            "inputs",
            of=lambda event: f"workflow {event.workflow_name!r}",
            own=True,
            strict=True,
        ),
        ev.WorkflowCompleted: _by_fields(
            ev.WorkflowCompleted, "value", of=lambda event: f"run {event.run_id!r}", strict=True
        ),
        ev.RunSuspended: _by_fields(
            ev.RunSuspended, "waiting", of=lambda event: f"run {event.run_id!r}", own=True
        ),
        ev.RunResumed: _by_fields(ev.RunResumed),
        ev.CancelRequested: _by_fields(ev.CancelRequested),
        ev.LimitReached: _by_fields(ev.LimitReached),
        ev.AttemptFailed: _by_fields(ev.AttemptFailed, "output", of=_step),
        ev.StepMoved: _by_fields(ev.StepMoved, talks=False),
        ev.StepInterrupted: _by_fields(ev.StepInterrupted),
        ev.ValidationRound: _by_fields(ev.ValidationRound, "round", of=_step, own=True),
        ev.GroupStarted: _by_fields(ev.GroupStarted, talks=False),
        ev.GroupCompleted: _by_fields(ev.GroupCompleted, talks=False),
        ev.SubworkflowStarted: _by_fields(ev.SubworkflowStarted, "inputs", of=_step, own=True),
        ev.SubworkflowEnded: _by_fields(ev.SubworkflowEnded, "value", of=_step, strict=True),
        ev.GateOpened: _by_fields(ev.GateOpened, "gate", of=_step, own=True),
        ev.GateAnswered: _by_fields(ev.GateAnswered, "answer", of=_step),
        ev.TimerSet: _by_fields(ev.TimerSet, talks=False),
        ev.SignalReceived: _by_fields(
            ev.SignalReceived, "payload", of=lambda event: f"signal {event.name!r}"
        ),
        ev.RollbackStarted: _by_fields(ev.RollbackStarted, talks=False),
        ev.RollbackCompleted: _by_fields(ev.RollbackCompleted),
        ev.AgentSessionStarted: _by_fields(ev.AgentSessionStarted),
        ev.LadderStep: _by_fields(ev.LadderStep),
        ev.BudgetReserved: _by_fields(ev.BudgetReserved, talks=False),
        ev.BudgetSettled: _by_fields(ev.BudgetSettled, talks=False),
        ev.BudgetWarning: _by_fields(ev.BudgetWarning, talks=False),
        ev.BudgetRaised: _by_fields(ev.BudgetRaised, talks=False),
    }


LAYOUTS: Mapping[type, Layout] = _layouts()
