"""The runs in the journals: what drove them, how far, and what drives them on to their end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import actions
import values
import workflows as flows

from handrail import (
    AgentError,
    Budget,
    CallbackSink,
    Executor,
    FakeBackend,
    Limits,
    Secrets,
    SqliteJournal,
    WorkflowResult,
)
from handrail.testing import JumpClock

Replies = Callable[[], Mapping[str, Sequence[Any]]]
Event = tuple[str, str]
"""The name of a kind of event, and a path."""


LAST_LIFE = 10
"""The number of the one in which a run is brought to its end."""


def no_replies() -> Mapping[str, Sequence[Any]]:
    """Of agents that have nothing to say."""
    return {}


@dataclass(frozen=True)
class Life:
    """One process that does something with a run.

    It posts ``signals`` and ``answers``, then cancels the run for the reason ``cancel``, or asks
    for that while another one drives it (``letter_only`` with ``cancel``), or begins the run or
    goes on with it unless that is all (``letter_only``). It is killed behind the event ``dies_at``.
    """

    signals: tuple[tuple[str, Any], ...] = ()
    answers: Mapping[str, Any] = field(default_factory=dict)
    cancel: str | None = None
    letter_only: bool = False
    rerun: tuple[str, ...] = ()
    reuse: tuple[str, ...] = ()
    dies_at: Event | None = None
    gates: Any = None
    limits: Limits | None = None
    replies: Replies = no_replies
    suspend_timers_after_s: float | None = None
    max_crashes: int = 5


@dataclass(frozen=True)
class Run:
    """A run: its workflow with inputs, the lives that are in the journal, and the one after."""

    flow: Any
    args: tuple[Any, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    lives: tuple[Life, ...] = (Life(),)
    end: Life = field(default_factory=Life)


@dataclass
class Drive:
    """What a process needs to be one life of a run. Mutable."""

    journal: SqliteJournal
    backend: FakeBackend
    executor: Executor
    run_id: str

    @property
    def begun(self) -> bool:
        """True if the run is in the journal."""
        return any(one.run_id == self.run_id for one in self.journal.runs())


def opened(file: Path) -> SqliteJournal:
    """The journal in a file."""
    return SqliteJournal(file, codec=values.CODEC)


def drive_of(file: Path, run_id: str, life: Life, on_event: Callable[[Any], None]) -> Drive:
    """What one life needs; its clock is two hours behind the last event."""
    journal = opened(file)
    known = [one.updated_at for one in journal.runs() if one.run_id == run_id]
    clock = JumpClock(known[0] + 7_200) if known else JumpClock()
    backend = FakeBackend(life.replies(), delay=5)
    executor = Executor(
        journal=journal,
        clock=clock,
        sinks=[CallbackSink(on_event)],
        workflows=[one.flow for one in BY_WORKFLOW.values()],
        gates=life.gates,
        limits=life.limits,
        secrets=Secrets(names=(values.VARIABLE,), words=()),
        backend=backend,
        suspend_timers_after_s=life.suspend_timers_after_s,
        max_crashes=life.max_crashes,
        stages={"program": "true"},
    )
    return Drive(journal, backend, executor, run_id)


def live(drive: Drive, run: Run, life: Life) -> WorkflowResult[Any] | None:
    """Be one life of a run."""
    executor, run_id = drive.executor, drive.run_id
    if not drive.begun:
        labelled = executor.options(run_id=run_id, labels={"written": "by 0.1"})
        return labelled.run_sync(run.flow, *run.args, **run.inputs)
    for name, payload in life.signals:
        executor.signal_sync(run_id, name, payload, by="somebody")
    for gate, answer in life.answers.items():
        executor.answer_sync(run_id, gate, answer, by="somebody")
    if life.cancel is not None:
        if not life.letter_only:
            return executor.cancel_sync(run_id, life.cancel)
        other = opened(Path(drive.journal.path))
        lease = other.acquire(run_id)
        executor.cancel_sync(run_id, life.cancel)
        lease.release()
        other.close()
    if life.letter_only:
        return None
    return executor.resume_sync(run_id, rerun=life.rerun, reuse=life.reuse)


def rows_of(file: Path, run_id: str) -> list[tuple[Any, ...]]:
    """The record of a run as it is stored."""
    connection = sqlite3.connect(file)
    try:
        return connection.execute(
            "SELECT seq, at, kind, path, body, value, blob, events.crc FROM events "
            "JOIN runs ON run = id WHERE run_id = ? ORDER BY seq",
            (run_id,),
        ).fetchall()
    finally:
        connection.close()


def ended_as(result: WorkflowResult[Any]) -> dict[str, Any]:
    """What a result says, as far as it does not depend on when and where it was."""
    dump = values.CODEC.dump
    return {
        "status": result.status,
        "error_type": result.error_type,
        "failed_step": result.failed_step,
        "value": dump(result.value),
        "degraded": result.degraded,
        "steps": [[one.path, one.status, one.attempts] for one in result.step_results],
        "waiting": [[one.path, one.question, one.opening] for one in result.waiting],
        "signals": list(result.waiting_signals),
        "rollback_errors": [one.path for one in result.rollback_errors],
        "orphaned": list(result.orphaned),
        "incidents": [[one.path, one.kind, one.rung] for one in result.incidents],
    }


def planned(drive: Drive, life: Life) -> dict[str, Any]:
    """What a plan says."""
    plan = drive.executor.plan_sync(drive.run_id, rerun=life.rerun, reuse=life.reuse)
    return {
        "status": plan.status,
        "ends": plan.ends,
        "undoes": list(plan.undoes),
        "unwinds": plan.unwinds,
        "steps": [[one.path, one.state, one.status, one.interrupted] for one in plan.steps],
    }


def brought_to_an_end(file: Path, run_id: str, effects: Path) -> dict[str, Any]:
    """What the last life of a run in a journal comes to."""
    run = RUNS[run_id]
    actions.WORLD.life, actions.WORLD.effects = LAST_LIFE, effects
    drive = drive_of(file, run_id, run.end, lambda _: None)
    (info,) = [one for one in drive.journal.runs() if one.run_id == run_id]
    before = rows_of(file, run_id)
    plan = None if info.status == "succeeded" else planned(drive, run.end)
    result = live(drive, run, run.end)
    assert result is not None
    after = rows_of(file, run_id)
    drive.journal.close()
    assert after[: len(before)] == before, "what was recorded has changed"
    if info.status == "succeeded" and not run.end.rerun:
        assert after == before, "a finished run was written to"
    did = effects.read_text("utf-8").splitlines() if effects.exists() else []
    return {
        "was": info.status,
        "events": len(before),
        "plan": plan,
        "result": ended_as(result),
        "effects": sorted(did),
        "turns": [[one.path, one.turn, one.session] for one in drive.backend.turns],
    }


# -- agents' replies -------------------------------------------------------------------------------


def down(agent: str, kind: Any = "transient", **more: Any) -> AgentError:
    """A launch that failed."""
    return AgentError(agent, f"it said {kind}", kind=kind, **more)


GOOD = flows.Review("good")


def review(*notes: str) -> Any:
    """What a reviewer answers."""
    return {"verdict": "good", "notes": list(notes)}


def all_replies() -> Mapping[str, Sequence[Any]]:
    """Those of a run of ``agents`` from its beginning."""
    reply = flows.session_reply
    return {
        "reviewer": [
            reply("no JSON", 1),
            reply({"verdict": "fine"}, 1),
            reply(review("a"), 1),
            reply(review("b", "c"), 1),
        ],
        "writer": [
            down("writer", session="s-2", usage=values.USAGE),
            down("writer", "crashed", session="s-2"),
            down("writer", "context_overflow", session="s-2", text="half"),
            reply("written", 2),
            reply("text", 3),
            reply("one", 4, 300),
            reply("two", 5),
            reply("last", 6),
        ],
    }


def three(agent: str = "writer") -> Replies:
    """Three plain answers of an agent."""
    return lambda: {agent: [flows.session_reply(f"answer {n}", n) for n in (1, 2, 3)]}


def last_reply() -> Mapping[str, Sequence[Any]]:
    """What is left to say where all but the last answer is recorded."""
    return {"writer": [flows.session_reply("last", 6)]}


def cap(retry_at: float | None) -> Replies:
    """A cap, then answers; then an agent who must be logged in."""
    return lambda: {
        "writer": [down("writer", "usage_cap", retry_at=retry_at), "one"],
        "reviewer": [down("reviewer", "auth", hint="Log in."), review()],
    }


def failing_replies() -> Mapping[str, Sequence[Any]]:
    """What the worker of ``failures`` says."""
    return {
        "worker": [
            down("worker", "refusal", usage=values.USAGE),
            flows.session_reply("done", 1),
            *[flows.session_reply("done", 2)] * 5,
        ]
    }


# -- the runs, by journal --------------------------------------------------------------------------

FULL = (values.Task("input", ("f.py",), values.NOON),)
INPUTS = {
    "price": Decimal("2.25"),
    "colours": (values.Colour.RED, values.Colour.BLUE),
    "anything": {"box": values.Box(values.Money(5)), "secret": values.SECRET},
}
MONEY = Limits(budget=Budget(launches=2, soft=0.4, on_breach="ask"))
ANSWERS = {"merge?": "yes"}
TASK = values.Task("signalled")

JOURNALS: dict[str, dict[str, Run]] = {
    "values": {
        "values": Run(values.values, FULL, INPUTS),
    },
    "values_killed": {
        "values-killed": Run(values.values, FULL, {**INPUTS, "ends": "killed"}),
    },
    "composed": {
        "composed": Run(flows.composed, ("m",)),
        **{
            f"composed-killed-{number}": Run(flows.composed, ("m",), lives=(Life(dies_at=event),))
            for number, event in enumerate(
                [
                    ("GroupStarted", "both"),
                    ("MemberCompleted", "window/k%2F1"),
                ],
                1,
            )
        },
    },
    "composed_late": {
        "composed-killed-late": Run(
            flows.composed, ("m",), lives=(Life(dies_at=("MemberCompleted", "nested/for/1")),)
        ),
    },
    "failures": {
        "failures-killed": Run(
            flows.failures, (True,), lives=(Life(), Life(replies=failing_replies))
        ),
    },
    "waiting": {
        "waits-at-first": Run(flows.waits, end=Life(signals=(("go", 1),), gates="approve")),
        "waits-signalled": Run(
            flows.waits,
            lives=(Life(), Life(signals=(("go", 1), ("go", 2), ("go", 3)), letter_only=True)),
            end=Life(answers={}, gates=None),
        ),
        "waits-answered": Run(
            flows.waits,
            lives=(
                Life(),
                Life(signals=(("go", 1), ("go", 2))),
                Life(answers=ANSWERS, letter_only=True),
                Life(),
                Life(answers={"count": "3"}, signals=(("late", "came"),), letter_only=True),
            ),
            end=Life(signals=(("task", {"title": "signalled"}),), suspend_timers_after_s=3600),
        ),
        "waits-long": Run(
            flows.waits,
            lives=(
                Life(),
                Life(signals=(("go", 1), ("task", {"title": "early"}))),
                Life(answers={"merge?": "no"}),
                Life(answers={"count": 4}),
                Life(suspend_timers_after_s=1_800),
            ),
            end=Life(),
        ),
        "waits-for-both": Run(
            flows.waits,
            lives=(
                Life(),
                Life(signals=(("go", 1), ("task", {"title": "early"}))),
                Life(answers={"merge?": "no"}),
                Life(answers={"count": 4}),
                Life(),
                Life(answers={"both/sure?": "Colour.RED"}),
            ),
            end=Life(signals=(("go", values.Box(1)),)),
        ),
        "waits-done": Run(
            flows.waits,
            lives=(
                Life(),
                Life(signals=(("go", 1), ("task", {"title": "early"}))),
                Life(answers={"merge?": "no"}),
                Life(answers={"count": 4}),
                Life(),
                Life(answers={"both/sure?": values.Colour.BLUE}),
                Life(signals=(("go", values.Box(1)), ("late", None))),
            ),
        ),
        "asks-again": Run(flows.asks_again, lives=(Life(), Life())),
        "asks-again-answered": Run(
            flows.asks_again,
            lives=(
                Life(),
                Life(signals=(("number", "no number"),)),
                Life(answers={"both/changes": "new"}, letter_only=True),
                Life(answers={"both/stays": {"content": 1}}),
            ),
            end=Life(signals=(("number", 5),)),
        ),
    },
    "undone": {
        "undone": Run(flows.undone, end=Life()),
        "undone-in-vain": Run(flows.undone, ("in vain", 99)),
        "undone-once": Run(flows.undone, ("quietly", 2)),
        "undone-half": Run(flows.undone, ("killed", 9)),
        "undone-half-2": Run(flows.undone, lives=(Life(dies_at=("RollbackStarted", "first")),)),
        "undone-half-3": Run(
            flows.undone, lives=(Life(dies_at=("RollbackCompleted", "kept child/two")),)
        ),
        "undone-child-half": Run(
            flows.undone, lives=(Life(dies_at=("RollbackCompleted", "child/two")),)
        ),
        "to-be-cancelled": Run(flows.cancelled, end=Life(cancel="in the end")),
        "cancelled": Run(flows.cancelled, lives=(Life(), Life(cancel="enough"))),
        "cancelled-by-letter": Run(
            flows.cancelled, lives=(Life(), Life(cancel="by letter", letter_only=True))
        ),
        "cancelled-by-letter-2": Run(
            flows.cancelled,
            lives=(
                Life(),
                Life(cancel="by letter", letter_only=True),
                Life(dies_at=("CancelRequested", "")),
            ),
        ),
        "cancelled-killed": Run(flows.cancelled, (True,), lives=(Life(), Life(cancel="enough"))),
        "cancelled-half": Run(
            flows.cancelled,
            lives=(
                Life(),
                Life(cancel="enough", dies_at=("RollbackCompleted", "both/child/before")),
            ),
        ),
    },
    "killed": {
        "killed-1": Run(flows.killed),
        "killed-2": Run(flows.killed, lives=(Life(), Life())),
        "killed-4": Run(flows.killed, lives=(Life(),) * 4),
        "killed-poison": Run(flows.killed, lives=(*(Life(),) * 7, Life(max_crashes=2))),
        "half-way-1": Run(flows.half_way, end=Life(dies_at=None)),
        "half-way-2": Run(flows.half_way, lives=(Life(),) * 2),
        "half-way-3": Run(flows.half_way, lives=(Life(),) * 3),
        "half-way-4": Run(flows.half_way, lives=(Life(),) * 4),
        "half-way-5": Run(flows.half_way, lives=(Life(),) * 5),
        "half-way-done": Run(flows.half_way, lives=(Life(),) * 6),
    },
    "changed": {
        "moved-1": Run(flows.moved),
        "moved-2": Run(flows.moved, lives=(Life(),) * 2),
        "moved-3": Run(flows.moved, lives=(Life(),) * 3),
        "moved-4": Run(flows.moved, lives=(Life(),) * 4),
        "moved-done": Run(flows.moved, lives=(Life(),) * 5),
    },
    "tried_again": {
        "tried-1": Run(flows.tried_again),
        "tried-2": Run(flows.tried_again, lives=(Life(),) * 2),
        "tried-3": Run(flows.tried_again, lives=(Life(),) * 3),
        "tried-killed": Run(flows.tried_again, lives=(Life(), Life(dies_at=("RunResumed", "")))),
        "tried-done": Run(flows.tried_again, lives=(Life(),) * 4),
        "chosen": Run(
            flows.chosen,
            lives=(Life(), Life(reuse=("kept",)), Life(rerun=("second",), reuse=("kept",))),
        ),
        "chosen-1": Run(flows.chosen, end=Life(reuse=("kept",))),
        "chosen-again": Run(
            flows.chosen,
            lives=(Life(), Life(reuse=("kept",))),
            end=Life(rerun=("first", "kept")),
        ),
        "limited": Run(flows.limited, (5,), lives=(Life(limits=Limits(max_steps=3)),), end=Life()),
    },
    "agents": {
        "agents": Run(flows.agents, lives=(Life(replies=all_replies),)),
        "agents-session": Run(
            flows.agents,
            lives=(Life(replies=all_replies, dies_at=("AgentSessionStarted", "last")),),
            end=Life(replies=last_reply),
        ),
        "agents-first-session": Run(
            flows.agents,
            lives=(Life(replies=all_replies, dies_at=("AgentSessionStarted", "review")),),
            end=Life(replies=all_replies),
        ),
        "agents-rung": Run(
            flows.agents,
            lives=(Life(replies=all_replies, dies_at=("LadderStep", "write")),),
            end=Life(replies=lambda: {**all_replies(), "writer": all_replies()["writer"][3:]}),
        ),
        "agents-reserved": Run(
            flows.agents,
            lives=(Life(replies=all_replies, dies_at=("BudgetReserved", "both/two")),),
            end=Life(replies=lambda: {"writer": all_replies()["writer"][6:]}),
        ),
        "money": Run(
            flows.asks_for_money,
            lives=(Life(limits=MONEY, replies=three()),),
            end=Life(limits=MONEY, answers={"s2/budget-1": "stop"}),
        ),
        "money-raised": Run(
            flows.asks_for_money,
            lives=(
                Life(limits=MONEY, replies=three()),
                Life(limits=MONEY, answers={"s2/budget-1": "allow"}, letter_only=True),
                Life(limits=MONEY, replies=three(), dies_at=("BudgetRaised", "s2")),
            ),
            end=Life(limits=MONEY, replies=three()),
        ),
        "capped": Run(
            flows.capped,
            lives=(Life(replies=cap(1_704_067_200.0 + 10 * 86_400)),),
            end=Life(replies=cap(None)),
        ),
        "parked": Run(
            flows.capped,
            lives=(Life(replies=cap(1_704_067_200.0 + 86_400)),),
            end=Life(replies=lambda: {"reviewer": [review("again")]}),
        ),
    },
}
if find_spec("pydantic") is not None:
    import models

    ITEM = models.Item(name="input")
    JOURNALS["models"] = {
        "models": Run(models.models, (ITEM,)),
        "models-done": Run(models.models, (ITEM,), lives=(Life(),) * 2),
    }
RUNS: dict[str, Run] = {}
for _runs in JOURNALS.values():
    RUNS.update(_runs)
BY_WORKFLOW = {run.flow.definition.name: run for run in RUNS.values()}
