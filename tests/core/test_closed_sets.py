"""Verbs, commands, events and modifiers are closed sets: what deals with each has a place for all.

Whoever adds one is told where it belongs: by the type checker, or by a test of this file, which
names the table. ``test_what_is_added_is_asked_for_everywhere`` adds one of each, and counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from handrail import Agent, Stage, Steps, step, workflow
from handrail.codec.codec import Codec
from handrail.core import commands as cmd
from handrail.core.conductor import Conductor
from handrail.core.machine import NODE_TYPES, REACTIONS
from handrail.model import events as ev
from handrail.model.agent_options import AgentSettings
from handrail.model.shapes import OwnTree
from handrail.record.live_view import LiveRun
from handrail.record.run_record import Recorded
from handrail.sinks.event_words import FORMS
from handrail.static import chain
from handrail.steps import bodies, groups, leaves, waits
from handrail.steps.step import StepName
from handrail.steps.table import VERBS
from handrail.steps.verbs import Modifiers, Step, Verb, Wanted

# -- events and reports ----------------------------------------------------------------------------

FOR_THE_RECORD = """
    AgentGuided AgentSessionStarted BudgetRaised BudgetReserved BudgetSettled BudgetWarning
    ClaimGranted ClaimLost ClaimWaiting GateOpened GroupCompleted GroupStarted LimitReached
    MemberStarted RollbackStarted SandboxDenied StepInterrupted StepMoved StepStarted
    SubworkflowEnded
    SubworkflowStarted TasksQueued TimerSet ValidationRound WorkStopped
"""
"""Events from which nothing follows: the machine asked for them."""
NOT_ASKED_FOR = "SubworkflowStarted ValidationRound"
"""Events that the record of a run does not need."""
NOT_LIVE = """
    AgentFinished AgentSessionStarted AgentTranscript AgentUsage BudgetRaised BudgetReserved
    BudgetSettled ClaimGranted ClaimLost ClaimWaiting SignalReceived SinkDropped StepMoved
    SubworkflowEnded TasksQueued TimerSet WorkEdited
"""
"""Events of which a live view shows nothing but what ``Recorded`` takes from them."""


def members(*unions: Any) -> set[type]:
    """The classes of some unions."""
    return {cls for union in unions for cls in get_args(union)}


EVENTS = members(ev.Event)
REPORTS = members(cmd.Report)
TABLES: dict[str, tuple[Any, set[type], str]] = {
    "what follows: REACTIONS": (set(REACTIONS), EVENTS | REPORTS, FOR_THE_RECORD),
    "the texts for people: FORMS": (set(FORMS), EVENTS, ""),
    "the record of a run: Recorded": (
        set(Recorded._TAKES),
        EVENTS | {ev.StepReplayed},
        NOT_ASKED_FOR,
    ),
    "the live view: LiveRun": (
        {*LiveRun._OF_RUN, *LiveRun._OF_STEP},
        members(ev.Event, ev.Progress),
        NOT_LIVE,
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_row_for_each_event(name: str) -> None:
    """None is forgotten, and none is there that is no event."""
    table, events, left_out = TABLES[name]
    assert {cls.__name__ for cls in table} == {cls.__name__ for cls in events} - {*left_out.split()}


@pytest.mark.parametrize("carry_out", [Conductor._carry_out, Conductor._begin])
def test_an_unknown_command_is_not_dropped(carry_out: Any) -> None:
    """It ends the drive with an error that names it, on any host."""

    class Unknown:
        path = "x"

    conductor: Any = type("Conductor", (), {"ends": None})()
    with pytest.raises(AssertionError, match="Unknown"):
        carry_out(conductor, Unknown())


# -- verbs -----------------------------------------------------------------------------------------


def classes_below(cls: type) -> Iterator[type]:
    """The verbs that handrail's own modules define, without those to derive from."""
    for derived in cls.__subclasses__():
        yield from classes_below(derived)
        if derived.__module__.startswith("handrail.") and "kind" in vars(derived):
            yield derived


OWN = sorted({cls.__qualname__: cls for cls in classes_below(Verb)}.items())


def test_each_verb_has_a_row() -> None:
    """Each class of a verb is in the list by its kind; a file that is not listed is found here."""
    assert {cls.kind: cls for _, cls in OWN} == {  # type: ignore[attr-defined]
        kind: verb for kind, verb in VERBS.items() if verb.__module__.startswith("handrail.")
    }


def test_no_node_class_is_for_nothing() -> None:
    """Each row of ``NODE_TYPES`` is that of a verb, or of a class that verbs derive from."""
    assert all(NODE_TYPES[verb] for verb in VERBS.values())  # which fills it
    rows = {cls for cls in NODE_TYPES if any(issubclass(verb, cls) for verb in VERBS.values())}
    assert set(NODE_TYPES) == rows


def called(value: Any = None) -> Any:
    """A function of the user's."""
    return value


def other() -> Any:
    """Another one."""


@workflow
def child(name: str = "") -> Steps[None]:
    """A workflow."""
    yield from step("a").call(called, name)


@workflow
def other_child(name: str = "") -> Steps[None]:
    """Another one."""
    yield from step("a").call(called, name)


def generator(name: str) -> Any:
    """What a scope runs."""
    yield step(name).call(called)


def one_step(name: str) -> Step[Any]:
    """A step."""
    return step(name).call(called)


ONE, OTHER = Agent("one", "x"), Agent("other", "x")
SETTINGS = AgentSettings(check=called), AgentSettings(check=other)
TREE = OwnTree("a", "b"), OwnTree("c", "d")
VALUES: dict[type, dict[str, tuple[Any, Any]]] = {
    leaves.PythonCall: {"action": (called, other), "args": ((1,), (2,)), "kwargs": ({"a": 1}, {})},
    leaves.ShellCommand: {"argv": (("a",), ("b",)), "cwd": ("a", "b"), "parse": (int, str)},
    leaves.AgentCall: {
        "agent": (ONE, OTHER),
        "context": ({"a": 1}, {"a": 2}),
        "settings": SETTINGS,
        "answers": (True, False),
    },
    leaves.Generation: {"generator": (ONE, OTHER), "context": ({"a": 1}, {"a": 2})},
    leaves.StageCheck: {"stage": (Stage("a", "x"), Stage("a", "y"))},
    leaves.TreeWork: {"action": ("make", "leave"), "base": ("a", "b"), "merge": ("ff", "keep")},
    bodies.Validation: {"stages": (("a",), ("b",))},
    bodies.ChildWorkflow: {
        "workflow": (child, other_child),
        "args": (("a",), ("b",)),
        "kwargs": ({"name": "a"}, {"name": "b"}),
    },
    bodies.ScopedBody: {"function": ("a", "b")},
    bodies.HeldBody: {
        "claims": (Wanted(("a",)), Wanted(("b",))),
        "body": (called, other),
        "args": ((1,), (2,)),
    },
    bodies.TreeBody: {
        "body": (called, other),
        "args": ((1,), (2,)),
        "base": ("a", "b"),
        "merge": ("ff", "keep"),
    },
    bodies.Branching: {"arms": (((called, one_step("a")),), ((called, one_step("b")),))},
    groups.ParallelGroup: {
        "steps": ((one_step("a"),), (one_step("b"),)),
        "on_error": ("fail_fast", "continue"),
    },
    groups.ForEachGroup: {"body": (called, other), "on_error": ("fail_fast", "continue")},
    groups.WorkGroup: {"body": (called, other), "on_error": ("fail_fast", "continue")},
    groups.RaceGroup: {"steps": ((one_step("a"),), (one_step("b"),))},
    waits.Question: {
        "question": ("a", "b"),
        "choices": (("a", "b"), ("a",)),
        "type": (int, str),
        "values": ((1, 2), (3, 4)),
    },
    waits.SignalWait: {"signal": ("a", "b"), "type": (int, str)},
    waits.Pause: {},
}
"""Two values of each argument that a fingerprint counts."""
MAY_CHANGE = {
    leaves.ShellCommand: "env stdin check sandbox inherit_env",
    leaves.Generation: "settings",
    leaves.TreeWork: "owner tree",
    bodies.Validation: "retry on_failure",
    bodies.ScopedBody: "body",
    bodies.TreeBody: "setup",
    groups.ParallelGroup: "max_concurrency min_success",
    groups.ForEachGroup: "items max_concurrency key min_success",
    groups.WorkGroup: "tasks max_concurrency at_most stop",
    waits.Question: "default has_default timeout_s agents_may_answer",
    waits.SignalWait: "agents_may_answer",
    waits.Pause: "seconds until",
}
"""The arguments that may change between two drives, or that other records compare."""
COUNTED = [
    (cls, field.name)
    for cls in VERBS.values()
    if cls.__module__.startswith("handrail.")
    for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    if field.name not in MAY_CHANGE.get(cls, "").split()
]


@pytest.mark.parametrize(
    ("verb", "name"), COUNTED, ids=[f"{verb.kind}-{name}" for verb, name in COUNTED]
)
def test_an_argument_counts(verb: Any, name: str) -> None:
    """Two verbs that differ in it have two fingerprints; a new one is in VALUES, or MAY_CHANGE."""
    values = VALUES[verb]
    given = {one.name: values.get(one.name, (None,))[0] for one in dataclasses.fields(verb)}
    if name != "args":
        given |= {"args": ()} if "args" in given else {}
    if name != "kwargs":
        given |= {"kwargs": {}} if "kwargs" in given else {}
    texts = {verb(**{**given, name: value}).fingerprint(Codec().identity) for value in values[name]}
    assert len(texts) == 2


# -- words and modifiers ---------------------------------------------------------------------------


def words_of(cls: type) -> set[str]:
    """The public methods of a class."""
    return {name for name, value in vars(cls).items() if callable(value) and name[0] != "_"}


def test_each_word_is_read_in_source_text() -> None:
    """The graph and the linter know each verb that can be typed."""
    assert set(chain.VERBS) == words_of(StepName)


def test_each_modifier_has_a_word() -> None:
    """Each field of ``Modifiers`` has a method of ``Step``, which the graph and the linter know."""
    assert words_of(Step) == chain.MODIFIERS
    given = [name for name in Modifiers.__struct_fields__ if name != "simple"]
    assert len(given) == len(chain.MODIFIERS - {"answer"}) + 1  # two of .holds()
