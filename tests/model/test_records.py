from __future__ import annotations

import copy
import dataclasses
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.codec.codec import Codec, Unresolved
from handrail.errors import OutputNotSerializable
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import (
    BranchResult,
    CommandResult,
    OpenGate,
    RollbackError,
    StageResult,
    StepResult,
    Usage,
    ValidationRoundResult,
    WaitsFor,
)
from handrail.model.work import Task
from handrail.record.rows import (
    Record,
    UnreadableRecord,
    _by_fields,
    from_record,
    missing_secrets,
    to_record,
)
from handrail.testing.contracts.sample_events import sample_events

CODEC = Codec()
ENVIRON = {"API_KEY": "hunter2!", "DB_PASSWORD": 'p"a\\s\ns-é'}


@dataclass(frozen=True)
class Report:
    title: str
    pages: tuple[int, ...] = ()


def _there_and_back(
    event: ev.Event, secrets: dict[str, str] | None = None, reading: dict[str, str] | None = None
) -> ev.Event:
    record = to_record(event, CODEC, secrets)
    reading = secrets if reading is None else reading
    return from_record(event.run_id, event.seq, event.at, record, CODEC, reading)


def _succeeded(output: Any, path: str = "plan") -> ev.StepCompleted:
    name = path.rpartition("/")[2]
    return ev.StepCompleted(path, StepResult(name, path, "python", "succeeded", output))


# -- strategies: an event of any kind, every field of it set to anything of its type ---------------

texts = st.text(max_size=12)
surrogates = st.sampled_from(["\ud800", "no such file: \udcff", "$", ":null"])
talk = texts | surrogates
names_in_paths = st.characters(exclude_characters="/", exclude_categories=("Cs",))
paths = st.lists(st.text(names_in_paths, min_size=1, max_size=5), min_size=1)
numbers = st.integers(0, 2**40)
seconds = st.floats(0, allow_nan=False)
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | talk | st.binary()
    | st.datetimes() | st.decimals(allow_nan=False) | st.builds(Report, texts)
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(talk, inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(BranchResult[Any], numbers, texts, inner)
    ),
    max_leaves=6,
)
usages = st.builds(
    Usage,
    *[st.none() | numbers] * 2,
    st.none() | seconds,
    *[st.none() | numbers] * 4,
    st.sampled_from([None, "reply", "table"]),
)
launches = st.builds(
    Launch,
    number=numbers,
    turn=numbers,
    rung=st.sampled_from(["start", "resume", "wait", "reask", "fallback"]),
    session=st.none() | texts,
    route=numbers,
    reason=talk,
    answer=talk,
    reasks=numbers,
    spent=st.none() | usages,
    session_usage=st.none() | usages,
    guidance=st.lists(talk, max_size=2).map(tuple),
    said=st.lists(talk, max_size=2).map(tuple),
)


def _results(path: str) -> st.SearchStrategy[StepResult[Any]]:
    return st.builds(
        StepResult[Any],
        name=st.just(path.rpartition("/")[2]) | texts,
        path=st.just(path) | texts,
        step_type=texts,
        status=st.sampled_from(["succeeded", "failed", "skipped", "defaulted", "cancelled"]),
        output=values,
        error=st.just("no luck") | surrogates,
        error_type=st.none() | texts,
        error_bases=st.lists(texts, max_size=2).map(tuple),
        traceback=st.none() | talk,
        duration_ms=seconds,
        attempts=numbers,
        replayed=st.booleans(),
        abandoned=st.booleans(),
        masked=st.booleans(),
        usage=st.none() | usages,
    )


anywhere = paths.map("/".join)
some_result = anywhere.flatmap(_results)
stages = st.builds(StageResult, texts, st.booleans(), talk, st.none() | talk, seconds)
rounds = st.builds(
    ValidationRoundResult, numbers, st.lists(stages, max_size=2).map(tuple), st.none() | some_result
)
gates = st.builds(
    OpenGate,
    anywhere,
    talk,
    st.lists(values, max_size=3).map(tuple),
    st.sampled_from([str, int, bool, Report, Any]),
    seconds,
    st.none() | seconds,
    values,
    st.booleans(),
)
names = st.lists(texts, max_size=2).map(tuple)
priorities = st.floats(allow_nan=False, allow_infinity=False)
tasks = st.lists(st.builds(Task, talk.filter(bool), values, priorities), max_size=2).map(tuple)
by_name = st.dictionaries(talk, values, max_size=3)
statuses = st.sampled_from(["succeeded", "failed", "cancelled", "suspended"])
optional = st.none() | talk

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("run_id", "workflow_name", "step_type", "fingerprint", "signal"), texts),
    **dict.fromkeys(("kind", "on_error", "key", "digest", "error_type", "name"), texts),
    **dict.fromkeys(
        ("seq", "attempt", "index", "number", "letter", "total", "took", "epoch"), numbers
    ),
    **dict.fromkeys(("succeeded", "failed", "cancelled", "skipped"), numbers),
    **dict.fromkeys(("size", "max_concurrency"), st.none() | numbers),
    **dict.fromkeys(
        ("retryable", "rollback", "once", "passed", "cleanup", "abandoned", "agents_may_answer"),
        st.booleans(),
    ),
    **dict.fromkeys(("signals", "superseded", "reused", "rerun", "error_bases"), names),
    **dict.fromkeys(("orphaned", "left_out", "order", "drop"), names),
    **dict.fromkeys(("tasks", "add"), tasks),
    "priority": st.dictionaries(talk, priorities, max_size=2),
    "found": st.lists(st.tuples(talk, priorities), max_size=2).map(tuple),
    "why_stopped": optional,
    "ended": numbers,
    "accepts": st.sampled_from([None, str, dict[str, int], Report, int | None]),
    **dict.fromkeys(("error", "reason"), talk),
    **dict.fromkeys(("traceback", "by", "failed_step", "cause"), optional),
    **dict.fromkeys(("at", "due", "duration_ms", "margin_s"), seconds),
    **dict.fromkeys(("value", "output", "answer", "payload"), values),
    **dict.fromkeys(("path", "overdue"), anywhere),
    "verdict": st.none() | st.booleans(),
    "labels": st.dictionaries(talk, talk, max_size=2),
    "notes": st.lists(talk, max_size=2).map(tuple),
    "inputs": by_name,
    "status": statuses,
    "usage": st.none() | usages,
    "used_before": st.none() | usages,
    "forked_from": st.none() | st.tuples(texts, st.none() | texts),
    "rollback_errors": st.lists(st.builds(RollbackError, texts, talk, texts)).map(tuple),
    "waiting": st.lists(gates, max_size=2).map(tuple),
    "waits_for": st.lists(
        st.builds(
            WaitsFor,
            st.sampled_from(["answer", "signal", "person", "time", "claim", "unpause"]),
            texts,
            talk,
            talk,
            st.none() | seconds,
        ),
        max_size=2,
    ).map(tuple),
    "gate": gates,
    "round": rounds,
    "result": some_result,
    "composed": st.just(""),
    **dict.fromkeys(("backend", "session", "scope", "what", "holder"), texts),
    "source": st.sampled_from(get_args(ev.DenialSource)),
    **dict.fromkeys(("tokens", "launch", "launches", "unmade"), numbers),
    **dict.fromkeys(("duration_s", "used", "limit"), seconds),
    "cost_usd": st.none() | seconds,
    "model": optional,
    "next": launches,
    "numbers": st.lists(numbers, max_size=2).map(tuple),
    "said_by": st.lists(talk, max_size=2).map(tuple),
    "parked": st.booleans(),
    "action": st.sampled_from(get_args(ev.SteeringAction)),
}
OWN_MEANING: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("LimitReached", "value"): seconds,
    **{(kind, "error"): optional for kind in ("WorkflowCompleted", "SubworkflowEnded")},
    ("RollbackCompleted", "error"): optional,
    ("LadderStep", "session"): optional,
    ("BudgetReserved", "tokens"): st.none() | numbers,
    **{
        (kind, "error_type"): st.none() | texts
        for kind in ("WorkflowCompleted", "RollbackCompleted")
    },
}


def _events_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    by_field = {
        field.name: OWN_MEANING.get((kind.__name__, field.name), FIELDS[field.name])
        for field in dataclasses.fields(kind)
    }
    return st.builds(kind, **by_field).map(
        lambda event: ev.stamp(event, event.run_id, event.seq, event.at)
    )


KINDS: list[type[Any]] = list(get_args(ev.Event))
any_event = st.one_of([_events_of(kind) for kind in KINDS])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=settings().max_examples // 4)  # of each kind
@given(st.data())
def test_an_event_comes_back_equal(kind: type[Any], data: st.DataObject) -> None:
    """An event whose fields hold anything of their types is equal after it was written and read;
    its body is a JSON object, and its value JSON, as any other program reads it.
    """
    event = data.draw(_events_of(kind))
    record = to_record(event, CODEC)
    assert type(json.loads(record.body)) is dict
    assert record.value is None or json.loads(record.value) is not None
    assert (kind.__name__, getattr(event, "path", "")) == record[:2]
    back = _there_and_back(event)
    assert type(event) is type(back)
    assert event == back
    assert record == to_record(back, CODEC)


def test_the_row_gives_run_number_and_time() -> None:
    """Run, number and time of an event are the row's."""
    record = to_record(ev.RollbackStarted("plan"), CODEC)
    back = from_record("run-1", 7, 1.5, record, CODEC)
    assert (back.run_id, back.seq, back.at) == ("run-1", 7, 1.5)


@pytest.mark.parametrize("composed", [True, False])
@pytest.mark.parametrize("kind", [ev.StepCompleted, ev.MemberCompleted])
def test_a_composed_output_is_not_written(kind: type[Any], composed: bool) -> None:
    """An output that follows from other records is left out, and comes back as None."""
    result = StepResult("p", "p", "parallel", "succeeded", (1, 2))
    index = {"index": 0} if kind is ev.MemberCompleted else {}
    event = kind(path="p", result=result, composed="members" if composed else "", **index)
    back: Any = _there_and_back(event)
    assert (None if composed else (1, 2)) == back.result.output
    assert event.composed == back.composed


# -- what other versions wrote ---------------------------------------------------------------------


@pytest.mark.parametrize("event", sample_events(), ids=lambda event: type(event).__name__)
def test_fields_of_a_newer_version_are_ignored(event: ev.Event) -> None:
    """A field that this version does not know changes nothing."""
    kind, path, body, value = to_record(event, CODEC)
    newer = Record(kind, path, json.dumps({**json.loads(body), "new_in_9": [1]}), value)
    assert event == from_record(event.run_id, event.seq, event.at, newer, CODEC)


def _without(event: ev.Event, name: str) -> ev.Event:
    record = to_record(event, CODEC)
    body = {key: item for key, item in json.loads(record.body).items() if key != name}
    return from_record("r", 1, 0.0, record._replace(body=json.dumps(body)), CODEC)


@pytest.mark.parametrize("event", sample_events(), ids=lambda event: type(event).__name__)
def test_a_field_that_is_missing_has_its_default(event: ev.Event) -> None:
    """A field that an older version did not write has its default."""
    required = {
        field.name
        for kind in (type(event), StepResult)
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    written = set(json.loads(to_record(event, CODEC).body))
    for name in written - required:
        assert type(event) is type(_without(event, name))
    for name in written & required:
        with pytest.raises(UnreadableRecord, match=f"it lacks '{name}'"):
            _without(event, name)


def test_a_kind_of_a_newer_version_is_an_error_that_says_so() -> None:
    """A kind that this version does not know is named, with what to do."""
    with pytest.raises(UnreadableRecord) as caught:
        from_record("run-1", 7, 0.0, Record("BudgetBorrowed", "", "{}", None), CODEC)
    assert str(caught.value) == (
        "run run-1: record 7 (BudgetBorrowed) cannot be read: this version knows no events of kind "
        "'BudgetBorrowed'; a newer version of handrail wrote it. Use that version, or a newer one, "
        "for this run"
    )
    assert str(caught.value) == str(copy.copy(caught.value))


@pytest.mark.parametrize(
    ("body", "value"),
    [("", None), ("[]", None), ("null", None), ('{"step_type":', None), ('{"$":"oh"}', None)],
)
def test_a_damaged_body_is_an_error(body: str, value: str | None) -> None:
    """A body that is no JSON object is an error that names the record."""
    with pytest.raises(UnreadableRecord, match=r"run r: record 3 \(StepStarted\) cannot be read"):
        from_record("r", 3, 0.0, Record("StepStarted", "a", body, value), CODEC)


def test_a_damaged_value_is_an_error() -> None:
    """A value that is no JSON is an error that names the record."""
    with pytest.raises(UnreadableRecord, match=r"record 3 \(SignalReceived\) cannot be read"):
        from_record("r", 3, 0.0, Record("SignalReceived", "", '{"name":"a"}', "{"), CODEC)


# -- values ----------------------------------------------------------------------------------------


def _refused() -> list[tuple[ev.Event, str, str]]:
    bad = object()
    result = StepResult("a", "each/a", "python", "succeeded", {"x": [bad]})
    gate = OpenGate("go?", "Go?", (1, bad))
    return [
        (ev.WorkflowStarted("ship", {"x": [bad]}), "workflow 'ship'", "inputs['x'][0]"),
        (ev.WorkflowCompleted("succeeded", bad, run_id="r1"), "run 'r1'", "value"),
        (ev.StepCompleted("each/a", result), "step 'each/a'", "output['x'][0]"),
        (ev.MemberCompleted("each/a", 0, result), "member 'each/a'", "output['x'][0]"),
        (ev.AttemptFailed("a", 1, "no", "m.E", output=bad), "step 'a'", "output"),
        (ev.GateAnswered("go?", bad), "step 'go?'", "answer"),
        (ev.SignalReceived("go", bad), "signal 'go'", "payload"),
        (ev.SubworkflowStarted("a", "ship", {"x": bad}), "step 'a'", "inputs['x']"),
        (ev.SubworkflowEnded("a", "ship", "succeeded", value=bad), "step 'a'", "value"),
        (ev.GateOpened("go?", gate), "step 'go?'", "gate.choices[1]"),
        (ev.RunSuspended((gate,), run_id="r1"), "run 'r1'", "waiting[0].choices[1]"),
    ]


@pytest.mark.parametrize(("event", "where", "field"), _refused(), ids=lambda it: type(it).__name__)
def test_what_cannot_be_recorded_is_named(event: ev.Event, where: str, field: str) -> None:
    """The error says whose value it is and which part of it."""
    with pytest.raises(OutputNotSerializable) as caught:
        to_record(event, CODEC)
    assert (where, field) == (caught.value.where, caught.value.field)


def gone() -> Any:
    """A value of a class that nobody can find again."""

    @dataclass(frozen=True)
    class Local:
        n: int

    return Local(1)


def unfound() -> Unresolved:
    """The text of such a value: the types that the code declared were there when it was written."""
    return Unresolved(CODEC.dump(gone()), "")


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (_succeeded(gone()), "output"),
        (_succeeded({"a": [1, gone()]}), "output['a'][1]"),
        (ev.MemberCompleted("each/a", 0, _succeeded([gone()]).result), "output[0]"),
        (ev.WorkflowCompleted("succeeded", Report(gone())), "value.title"),
        (ev.SubworkflowEnded("a", "ship", "succeeded", value=(gone(),)), "value[0]"),
        (ev.WorkflowStarted("ship", {"x": gone()}), "inputs['x']"),
    ],
    ids=lambda it: type(it).__name__,
)
def test_a_value_of_a_class_that_nobody_will_find_is_refused(event: ev.Event, field: str) -> None:
    """A class that its name does not lead to is refused when it is written, not when it is read."""
    with pytest.raises(OutputNotSerializable, match="cannot be found by its name") as caught:
        to_record(event, CODEC)
    assert field == caught.value.field


def test_an_output_of_an_unknown_class_is_kept_as_text() -> None:
    """A value whose class is not found comes back as its text, and is written again as it was."""
    event = _succeeded(unfound())
    back: Any = _there_and_back(event)
    assert type(back.result.output) is Unresolved
    assert to_record(event, CODEC) == to_record(back, CODEC)


def test_a_gate_with_choices_of_an_unknown_class_is_a_gate() -> None:
    """Of a gate, only what cannot be found is unresolved."""
    both: list[OpenGate] = []
    for _ in range(2):
        lost = gone()
        both.append(OpenGate("go?", "Go?", ("no", lost), default=lost, since=2.0))
    back: Any = _there_and_back(ev.RunSuspended(tuple(both)))
    opened: Any = _there_and_back(ev.GateOpened("go?", both[0]))
    assert len(back.waiting) == 2
    for found in (*back.waiting, opened.gate):
        no, other = found.choices
        assert (OpenGate, "no", Unresolved) == (type(found), no, type(other))
        assert ("Go?", 2.0, str, Unresolved) == (
            found.question, found.since, found.type, type(found.default),
        )  # fmt: skip


def test_a_round_with_a_fix_of_an_unknown_class_is_a_round() -> None:
    """Of a round, only the output of its fix is unresolved."""
    stage = StageResult("lint", passed=False, output="E1")
    fix = StepResult("fix", "check/1/fix", "python", "succeeded", [gone()], usage=Usage(1))
    event = ev.ValidationRound(
        "check", 1, passed=False, round=ValidationRoundResult(1, (stage,), fix)
    )
    back: Any = _there_and_back(event)
    assert (stage,) == back.round.stages
    assert type(back.round.fix.output) is Unresolved
    assert dataclasses.replace(fix, output=None) == dataclasses.replace(back.round.fix, output=None)


@pytest.mark.parametrize(
    "kind",
    [
        lambda inputs: ev.WorkflowStarted("w", inputs),
        lambda inputs: ev.SubworkflowStarted("a", "w", inputs),
    ],
)
def test_inputs_are_found_one_by_one(kind: Any) -> None:
    """An input of a class that is not found leaves the others as they were."""
    back: Any = _there_and_back(kind({"a": 1, "b": unfound(), "c": Report("t")}))
    assert (1, Report("t")) == (back.inputs["a"], back.inputs["c"])
    assert type(back.inputs["b"]) is Unresolved


class Loud(str):
    __slots__ = ()


def test_a_text_of_a_subclass_of_str_is_written_as_text() -> None:
    """An error whose text is of a class of its own is recorded as plain text."""
    back: Any = _there_and_back(ev.StepInterrupted("a", Loud("stop")))
    assert ("stop", str) == (back.reason, type(back.reason))


def test_a_number_that_json_cannot_say_comes_back() -> None:
    """Infinity and NaN in a field of an event come back."""
    assert math.inf == getattr(_there_and_back(ev.TimerSet("a", math.inf, "gate")), "due", 0)
    assert math.isnan(getattr(_there_and_back(ev.TimerSet("a", math.nan, "gate")), "due", 0))


def test_typed_values_come_back_with_their_types() -> None:
    """Every place of a user's value takes what the codec takes."""
    value = {"when": datetime(2030, 1, 1, tzinfo=UTC), "sum": Decimal("1.10"), "r": Report("t")}
    for event in (
        ev.WorkflowStarted("w", value),
        ev.WorkflowCompleted("succeeded", value),
        _succeeded(value),
        ev.AttemptFailed("a", 1, "no", "m.E", output=value),
        ev.GateAnswered("a", value),
        ev.SignalReceived("go", value),
        ev.GateOpened("a", OpenGate("a", "?", (value,), Report, default=value)),
    ):
        assert event == _there_and_back(event)


# -- secrets ---------------------------------------------------------------------------------------


def _raw(record: Record) -> str:
    return "".join(part or "" for part in record[2:])


def test_a_secret_is_written_as_a_reference() -> None:
    """A value of a secret variable is in the record as the variable's name, and comes back."""
    event = _succeeded("Bearer hunter2!, again: hunter2!")
    record = to_record(event, CODEC, ENVIRON)
    assert record.value == (
        '{"$":"secret","v":["Bearer ",{"env":"API_KEY"},", again: ",{"env":"API_KEY"}]}'
    )
    assert event == _there_and_back(event, ENVIRON)


placed = st.sampled_from([*ENVIRON.values(), json.dumps(ENVIRON["DB_PASSWORD"])[1:-1]])
with_secret = st.builds("{}{}{}".format, texts, placed, texts)
secret_values = st.recursive(
    with_secret | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(with_secret | texts | surrogates, inner, max_size=3)
        | st.dictionaries(st.tuples(with_secret), inner, max_size=2)
        | st.tuples(inner)
        | st.builds(Report, with_secret)
        | st.builds(CommandResult[Any], st.just(0), with_secret, texts, inner)
        | st.builds(lambda a, b: a + b.encode(), st.binary(), with_secret)
    ),
    max_leaves=8,
)


@given(secret_values, with_secret)
def test_no_secret_is_in_a_record(value: Any, text: str) -> None:
    """However a secret is nested, the record does not have it, and the event comes back equal."""
    failed = StepResult[Any]("a", "a", "python", "failed", value, text, traceback=text)
    for event in (
        ev.StepCompleted("a", failed),
        ev.WorkflowStarted("w", {"x": value}, {"label": text, text: "label"}),
        ev.GateOpened("a", OpenGate("a", text, (value,), default=value)),
        ev.CancelRequested(text),
        ev.RunSuspended(notes=(text,)),
        ev.WorkflowCompleted(
            "failed", value, text, rollback_errors=(RollbackError("a", text, "E"),)
        ),
        ev.GateAnswered("a", value, text),
        ev.AgentSessionStarted("a", text),
        ev.LadderStep("a", 1, "refusal", text, Launch(rung="reask", session=text, answer=text)),
    ):
        record = to_record(event, CODEC, ENVIRON)
        for secret in ENVIRON.values():
            once = json.dumps(secret, ensure_ascii=False)[1:-1]
            twice = json.dumps(once, ensure_ascii=False)[1:-1]
            assert not any(form in _raw(record) for form in (secret, once, twice))
        assert event == from_record("", 0, 0.0, record, CODEC, ENVIRON)
        assert missing_secrets(record, ENVIRON) == ()


def test_secrets_in_bytes_are_found() -> None:
    """A secret in bytes that are written as base64 is a reference too."""
    event = _succeeded(
        [b"\x00\xffhunter2!\xfe", bytearray(b"\x80" + ENVIRON["DB_PASSWORD"].encode())]
    )
    record = to_record(event, CODEC, ENVIRON)
    assert '{"$":"secret","base64":["AP8=",{"env":"API_KEY"},"/g=="]}' in (record.value or "")
    assert '"base64":["gA==",{"env":"DB_PASSWORD"}]' in (record.value or "")
    assert event == _there_and_back(event, ENVIRON)


def test_a_variable_that_is_missing_is_named() -> None:
    """Without the variable, its place is taken by its name, and the reading can tell."""
    event = ev.StepCompleted(
        "a",
        StepResult("a", "a", "python", "failed", {"k": "hunter2!", "hunter2!": 1}, "bad hunter2!"),
    )
    record = to_record(event, CODEC, ENVIRON)
    back: Any = from_record("", 0, 0.0, record, CODEC)
    assert (
        back.result.output, back.result.error,
    ) == ({"k": "${API_KEY}", "${API_KEY}": 1}, "bad ${API_KEY}")  # fmt: skip
    assert missing_secrets(record) == ("API_KEY",)
    assert missing_secrets(record, {"OTHER": "value-7"}) == ("API_KEY",)
    assert missing_secrets(record, ENVIRON) == ()
    assert missing_secrets(to_record(_succeeded("plain"), CODEC, ENVIRON)) == ()


def test_a_value_that_needs_a_missing_variable_is_kept_as_text() -> None:
    """Where a value cannot be built without its secret, it is unresolved."""
    from uuid import UUID

    uuid = "6f0f1c4e-2f6b-4d5f-9d39-5b8f0c9f3b11"
    event = _succeeded(UUID(uuid))
    record = to_record(event, CODEC, {"API_KEY": uuid})
    assert uuid not in _raw(record)
    assert event == from_record("", 0, 0.0, record, CODEC, {"API_KEY": uuid})
    back: Any = from_record("", 0, 0.0, record, CODEC)
    assert type(back.result.output) is Unresolved


def test_a_changed_variable_gives_its_new_value() -> None:
    """A reference is to the variable, so that a rotated key is used from then on."""
    back: Any = _there_and_back(_succeeded("key=hunter2!"), ENVIRON, {"API_KEY": "correct horse"})
    assert back.result.output == "key=correct horse"


def test_the_words_of_a_record_survive_a_variable_with_such_a_value() -> None:
    """A variable whose value is a word of the record itself does not make the record unreadable."""
    odd = {"KEY_MODE": "succeeded", "TOKEN_KIND": "python", "MY_KEY": "failed", "A_KEY": "verify"}
    result = StepResult[Any](
        "verify", "verify", "python", "failed", None, "verify failed", "m.verify"
    )
    back: Any = _there_and_back(ev.StepCompleted("verify", result), odd, {})
    assert dataclasses.replace(result, error="${A_KEY} ${MY_KEY}") == back.result
    gate = OpenGate("verify", "Shall python go on?")
    back = _there_and_back(ev.GateOpened("verify", gate), odd, {})
    assert dataclasses.replace(gate, question="Shall ${TOKEN_KIND} go on?") == back.gate
    odd = {"A_KEY": "fallback", "B_KEY": "claude", "C_KEY": "output_tokens", "D_KEY": "number"}
    launch = Launch(2, rung="fallback", reason="claude", spent=Usage(output_tokens=3))
    ladder = ev.LadderStep("code", 1, "transient", "claude fell", launch, backend="claude")
    back = _there_and_back(ladder, odd, {})
    assert (
        dataclasses.replace(
            ladder, error="${B_KEY} fell", next=dataclasses.replace(launch, reason="${B_KEY}")
        )
        == back
    )


TOKEN = "ghp_" + "a1B2" * 9


def test_a_token_is_cut_and_the_result_says_so() -> None:
    """A token that is no known value is cut for good, and the result comes back as masked."""
    for event in (
        _succeeded([f"use {TOKEN}"]),
        ev.MemberCompleted("plan", 0, StepResult("plan", "plan", "m", "succeeded", f"use {TOKEN}")),
    ):
        record = to_record(event, CODEC)
        assert TOKEN not in _raw(record)
        back: Any = from_record("", 0, 0.0, record, CODEC)
        assert "use ghp_***a1B2" in back.result.output
        assert back.result.masked is True


def test_a_token_that_is_a_known_value_is_a_reference() -> None:
    """A token that a variable holds comes back whole, and nothing is masked."""
    event = _succeeded({"token": TOKEN, TOKEN: "token"})
    assert event == _there_and_back(event, {"GH_TOKEN": TOKEN})


def test_a_token_in_an_error_is_cut() -> None:
    """The text of an error is masked too; the output is not said to be."""
    event = ev.StepCompleted("a", StepResult("a", "a", "python", "failed", 1, f"denied: {TOKEN}"))
    back: Any = _there_and_back(event)
    assert (back.result.error, back.result.masked) == ("denied: ghp_***a1B2", False)


def test_short_values_are_left_alone() -> None:
    """A value of less than 6 characters is not looked for."""
    record = to_record(_succeeded("12345 and more"), CODEC, {"API_KEY": "12345"})
    assert record.value == '"12345 and more"'


def test_a_deep_output_with_a_secret_is_written_without_recursion() -> None:
    """Nesting as deep as the codec allows does not overflow the stack."""
    value: Any = "hunter2!"
    for _ in range(90):
        value = ([value],)
    event = _succeeded(value)
    assert "hunter2!" not in _raw(to_record(event, CODEC, ENVIRON))
    assert event == _there_and_back(event, ENVIRON)


HOSTILE = {
    "order": ("int", 3),
    "next": ("str", "next"),
    "usage": ("str", "much"),
    "labels": ("tuple[str, ...]", ("a", "b")),
    "priority": ("int | None", None),
    "handled": ("bool", True),
    "waits_for": ("Mapping[str, str]", {"a": "b"}),
    "waiting": ("str", "yes"),
    "add": ("Literal['more']", "more"),
    **{name: ("str", name) for name in ("made", "new", "twin", "cls", "old", "field_old")},
}
"""Names that fields of other types have, or local variables; each with another type."""


def test_a_field_is_read_by_its_type_whatever_its_name_is() -> None:
    """A new event may give its fields any names: no name means anything to the record."""
    made = dataclasses.make_dataclass(
        "Strange",
        [("path", "str"), *((name, kind) for name, (kind, _) in HOSTILE.items())],
        bases=(ev.Stamped,),
        frozen=True,
        slots=True,
    )
    layout = _by_fields(made)
    event = made("p", *(value for _, value in HOSTILE.values()))
    body, _, _ = layout.write(event)
    assert layout.read(("", 0, 0.0), "p", json.loads(json.dumps(body)), None) == event


@pytest.mark.parametrize("kind", ["set[int]", "Path", "list[str]", "Report"])
def test_a_field_of_a_type_that_no_record_can_have_is_refused(kind: str) -> None:
    """It is found when the module is imported, not by whoever reads the record."""
    made = dataclasses.make_dataclass("Strange", [("path", "str"), ("order", kind)])
    with pytest.raises(TypeError, match=rf"Strange.order: .*no form for {re.escape(kind)}"):
        _by_fields(made)
