"""PlainLog: the lines of a run without a terminal."""

# ruff: noqa: RUF001  # the console's signs are meant

from __future__ import annotations

import time
from typing import Any

import pytest

from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import Skipped, Usage
from handrail.record.live_view import LiveRun
from handrail.sinks.console_plain import MAX_VERBOSE_MEMBERS, PlainLog, ending
from handrail.sinks.console_text import ASCII, UNICODE, pace, text_of
from handrail.testing.contracts.sample_events import sample_progress
from tests.sinks.story import Story


class Log:
    """Everything that a plain log said."""

    def __init__(self) -> None:
        self.view = LiveRun("ship-1")
        self.log = PlainLog(UNICODE)
        self.said: list[str] = []

    def emit(self, event: Any) -> None:
        """Keep what the log says of the event."""
        self.said += [text_of(line) for line in self.log.lines(event, self.view.apply(event))]


@pytest.fixture
def log() -> Log:
    """What is said of the story."""
    return Log()


@pytest.fixture
def story(log: Log) -> Story:
    """A run that the log is told."""
    return Story(log.emit)


def test_top_level_and_composite_steps_say_when_they_start(log: Log, story: Story) -> None:
    """Each step says how it ended; how it began only one at the top, or one that has steps."""
    story.begin()
    story.run("plan", "agent")
    story.start("docs", "subworkflow")
    story.run("docs/spell", "command", attempts=2)
    story.end("docs")
    assert log.said == [
        "▸ ship  started, run ship-1",
        "▸ plan  agent",
        "✓ plan  agent  1.0 s",
        "▸ docs  subworkflow",
        "✓ docs/spell  command  ×2  1.0 s",
        "✓ docs  subworkflow  3.0 s",
    ]


def test_what_is_not_plain_success_has_its_status(log: Log, story: Story) -> None:
    """A word says what the sign may not, and the error follows."""
    story.run("a/x", status="failed")
    story.run("a/y", status="defaulted", error="no net", error_type="builtins.OSError")
    story.run("a/z", status="skipped", output=Skipped("not today"))
    assert log.said == [
        "✗ a/x  python  failed  1.0 s  ValueError: boom",
        "↷ a/y  python  defaulted  1.0 s  OSError: no net",
        "⊘ a/z  python  skipped  not today",
    ]


def test_a_skipped_step_does_not_start(log: Log, story: Story) -> None:
    """A step whose predicate was false has one line."""
    story.start("a", verdict=False)
    story.end("a", "skipped")
    assert log.said == ["⊘ a  python  skipped"]


def test_each_attempt_that_another_followed_is_told(log: Log, story: Story) -> None:
    """A failed attempt has a line once it is clear that it was not the last."""
    story.start("a/b")
    for attempt in (1, 2, 3):
        story.tell(ev.AttemptFailed("a/b", attempt, f"no {attempt}", "app.Busy"))
        if attempt == 1:
            story.tell(ev.TimerSet("a/b", story.at + 5, "retry"), after=0)
    story.end("a/b", "failed", attempts=3, error="no 3")
    assert log.said == [
        "↻ a/b  attempt 1 failed, retrying in 5 s: Busy: no 1",
        "↻ a/b  attempt 2 failed, retrying: Busy: no 2",
        "✗ a/b  python  failed  ×3  4.0 s  ValueError: no 3",
    ]


def test_a_success_at_the_second_attempt_tells_of_the_first(log: Log, story: Story) -> None:
    """Without a pause between attempts there is no other event to tell it with."""
    story.start("a/b")
    story.tell(ev.AttemptFailed("a/b", 1, "no", "app.Busy"))
    story.end("a/b", attempts=2)
    assert log.said == [
        "↻ a/b  attempt 1 failed, retrying: Busy: no",
        "✓ a/b  python  ×2  2.0 s",
    ]


def test_gates_and_timers_and_signals_are_told(log: Log, story: Story) -> None:
    """What a run waits for, and what it got, has a line each."""
    story.ask("merge?", "Merge it?", "yes", "no", deadline=21.0)
    story.tell(ev.GateAnswered("merge?", "yes", "ann"))
    story.start("pause", "sleep")
    story.tell(ev.TimerSet("pause", story.at + 30, "sleep"))
    story.tell(ev.SignalReceived("go", None, "ben"))
    assert log.said == [
        "⏸ merge?  asks: Merge it? [yes, no], answer in 20 s",
        "▸ merge?  answered yes by ann",
        "⏸ pause  sleep  in 29 s",
        "▸ run ship-1  signal go from ben",
    ]


def test_what_befalls_the_run_is_told(log: Log, story: Story) -> None:
    """Limits, cancellation, interruption, rollbacks, and sinks that were dropped."""
    story.tell(ev.LimitReached("max_steps", 10, "plan"))
    story.tell(ev.CancelRequested("enough"))
    story.tell(ev.StepInterrupted("build", "SIGTERM"))
    story.tell(ev.RollbackStarted("plan"))
    story.tell(ev.RollbackCompleted("plan"))
    story.tell(ev.RollbackCompleted("plan", "no way", "builtins.OSError"))
    story.tell(ev.SinkDropped("JsonlSink", "disk full"))
    assert log.said == [
        "✗ plan  reached the limit max_steps=10",
        "⚑ run ship-1  cancelling: enough",
        "⏸ build  interrupted: SIGTERM",
        "↶ plan  rolled back",
        "✗ plan  rollback failed: OSError: no way",
        "✗ JsonlSink  sink  dropped: disk full",
    ]


def test_a_resumed_run_counts_what_it_took_from_the_record(log: Log, story: Story) -> None:
    """Replayed steps have one line together."""
    story.tell(ev.RunResumed(("a", "b")))
    for index in range(1000):
        story.tell(ev.StepReplayed(f"s{index}"))
    story.run("a/b")
    assert log.said == [
        "▸ run ship-1  resumed, 2 steps to run again",
        "▸ 1000 steps taken from the record",
        "✓ a/b  python  1.0 s",
    ]


def test_output_is_not_told(log: Log, story: Story) -> None:
    """What programs and agents print is left to them."""
    story.tell(ev.StepOutput("a", "stdout", "hello\n"))
    story.tell(ev.AgentMessage("a", "hello"))
    assert log.said == []


def test_members_of_a_small_group_speak_for_themselves(log: Log, story: Story) -> None:
    """Each member and each step in it has a line."""
    story.group("review", 2)
    for index in (0, 1):
        story.member(f"review/{index}", index)
        story.run(f"review/{index}/read", "command")
        story.member_ends(f"review/{index}")
    story.end("review")
    assert log.said == [
        "▸ review  for_each  2 members",
        "✓ review/0/read  command  1.0 s",
        "✓ review/0  3.0 s",
        "✓ review/1/read  command  1.0 s",
        "✓ review/1  3.0 s",
        "✓ review  for_each  2 of 2 done  7.0 s",
    ]


def test_a_large_group_speaks_for_its_members(log: Log, story: Story) -> None:
    """It reports each tenth of its way; a member has a line only if it failed."""
    story.group("review", 1000)
    for index in range(1000):
        story.member(f"review/{index}", index)
        story.start(f"review/{index}/inner", "validate")
        story.end(f"review/{index}/inner", "failed" if index == 450 else "succeeded")
        story.member_ends(f"review/{index}", "failed" if index == 450 else "succeeded")
    story.end("review")
    assert log.said == [
        "▸ review  for_each  1000 members",
        *(f"▸ review  for_each  {done} of 1000 done" for done in (100, 200, 300, 400)),
        "✗ review/450  failed  3.0 s  ValueError: boom",
        *(f"▸ review  for_each  {done} of 1000 done · 1 failed" for done in range(499, 999, 100)),
        "✓ review  for_each  999 of 1000 done · 1 failed · ValueError × 1  50 min 1 s",
    ]


def test_ten_thousand_failures_are_no_ten_thousand_lines(log: Log, story: Story) -> None:
    """The first failures are told, the others counted."""
    story.group("review", 10_000, "parallel")
    for index in range(10_000):
        story.run(f"review/{index}", status="failed")
    story.end("review", "failed")
    assert len(log.said) == 1 + MAX_VERBOSE_MEMBERS + 9 + 1
    assert log.said[-1].startswith("✗ review  parallel  failed  0 of 10000 done · 10000 failed")


@pytest.mark.parametrize(("size", "shown"), [(None, ""), (1, "  1 member")])
def test_a_group_of_unknown_size_goes_quiet(
    size: int | None, shown: str, log: Log, story: Story
) -> None:
    """After the first members it reports now and then; so does work that grew unheard."""
    story.group("review", size)
    for index in range(1100):
        story.member(f"review/{index}", index)
        story.member_ends(f"review/{index}")
    assert log.said[0] == f"▸ review  for_each{shown}"
    assert log.said[MAX_VERBOSE_MEMBERS + 1 :] == [
        "▸ review  for_each  500 done",
        "▸ review  for_each  1000 done",
    ]


def test_a_later_attempt_of_a_group_counts_its_own_members(log: Log, story: Story) -> None:
    """Members of attempt 2 stand below another path, and belong to the same group."""
    story.group("review", 30)
    story.tell(ev.AttemptFailed("review", 1, "no", "app.Busy"))
    story.tell(ev.GroupStarted("review", "for_each", 30))
    for index in range(30):
        story.member(f"review~2/{index}", index)
        story.member_ends(f"review~2/{index}")
    story.tell(ev.GroupCompleted("review", "for_each", 30, 30))
    story.end("review", attempts=2)
    assert log.said[-1] == "✓ review  for_each  30 of 30 done  ×2  34 s"
    assert not [line for line in log.said if "review~2/3 " in line]


def test_gates_in_a_large_group_are_told() -> None:
    """A question needs an answer, wherever it is asked."""
    log = Log()
    story = Story(log.emit)
    story.group("review", 1000)
    story.ask("review/7/sure?", "Sure?")
    assert log.said[-1] == "⏸ review/7/sure?  asks: Sure?"


def test_ascii_is_enough() -> None:
    """With ASCII glyphs every line is ASCII."""
    log = Log()
    log.log = PlainLog(ASCII)
    story = Story(log.emit)
    story.begin()
    story.run("plan", status="failed", attempts=2)
    assert log.said[1:] == ["> plan  python", "x plan  python  failed  x2  1.0 s  ValueError: boom"]


def test_what_follows_the_failure_of_an_agent_is_a_line(log: Log, story: Story) -> None:
    """It says which rung comes next and why; the wait for a cap is said once."""
    story.begin()
    story.start("code", "agent")
    step = ev.LadderStep("code", 1, "invalid_output", "no JSON", Launch(2, rung="reask"))
    story.tell(step)
    cap = ev.LadderStep("code", 1, "usage_cap", "used up", Launch(3, rung="wait"), 33.0, "claude")
    story.tell(cap)
    story.tell(ev.TimerSet("code", 33.0, "cap"))
    story.tell(ev.LadderStep("code", 1, "auth", "log in", Launch(4), backend="x", parked=True))
    story.tell(ev.TimerSet("code", 90.0, "cap"))
    assert log.said[2:] == [
        "↻ code  asks again: invalid output",
        "⏸ code  checks again in 30 s: usage cap, claude: used up",
        "⏸ code  needs a person: auth: log in",
        "⏸ code  waits for a limit  until 01:01 (in 1 min)".replace("01:01", clock(90.0)),
    ]


def clock(at: float) -> str:
    """The time of day, where this runs."""
    return time.strftime("%H:%M", time.localtime(at))


def test_budgets_have_lines(log: Log, story: Story) -> None:
    """A soft bound that was passed, and more that was allowed, are said."""
    story.begin()
    story.tell(ev.BudgetReserved("code", 1, 10))
    story.tell(ev.BudgetWarning("code", "", "cost_usd", 0.9, 1.0))
    story.tell(ev.BudgetWarning("code", "a/b", "tokens", 900.0, 1000.0))
    story.tell(ev.BudgetWarning("a0", "a0", "unknown_usd", 1.0, 0.0))
    story.tell(ev.BudgetWarning("code", "", "unknown_tokens", 2.0, 0.0))
    story.tell(ev.BudgetWarning("code", "", "first_launch", 1.0, 0.0))
    story.tell(ev.BudgetRaised("code", ""))
    story.tell(ev.BudgetRaised("code", "a/b"))
    reserved = "so only the amount reserved for"
    first = "waits for its first launch, to learn what one uses; set reserve_* to avoid this"
    assert log.said[1:] == [
        "▸ code  budget: used 0.9 of 1 cost_usd",
        "▸ code  budget of step 'a/b': used 900 of 1000 tokens",
        f"▸ a0  budget of step 'a0': 1 launch did not report cost, {reserved} it counts",
        f"▸ code  budget: 2 launches did not report tokens, {reserved} them counts",
        f"▸ code  budget: {first}",
        "▸ code  budget: raised by its original amount",
        "▸ code  budget of step 'a/b': raised by its original amount",
    ]


def test_what_an_agent_does_has_no_line(log: Log, story: Story) -> None:
    """Tools, usage and lines of its program are no news for a log; troubles of its backend are."""
    story.begin()
    for notice in sample_progress():
        if type(notice).__name__.startswith("Agent"):
            story.tell(notice)
    assert log.said[1:] == [
        "↻ plan  its backend tries again in 2.0 s (retry 1): 529 overloaded",
        "⏸ plan  limit of its backend: five hour 90% used, opens again at 00:01 (in 1 min)".replace(
            "00:01", clock(90.0)
        ),
    ]


def test_a_backends_own_retries_are_told_now_and_then(log: Log, story: Story) -> None:
    """The first has a line, then one every 30 s says how many have come since."""
    story.start("code", "agent")
    for attempt in range(1, 9):
        story.tell(ev.AgentRetry("code", attempt, 5.0, "no network"), after=10.0)
    more = " (2 more since the last line)"
    assert log.said[1:] == [
        "↻ code  its backend tries again in 5.0 s (retry 1): no network",
        f"↻ code  its backend tries again in 5.0 s (retry 4): no network{more}",
        f"↻ code  its backend tries again in 5.0 s (retry 7): no network{more}",
    ]


def test_steps_and_kinds_of_notices_do_not_hush_each_other(log: Log, story: Story) -> None:
    """Each step has its own pauses, and so has a limit that is reached after it was near."""
    for path in ("a", "b"):
        story.tell(ev.AgentRetry(path, reason="no network"))
        story.tell(ev.AgentLimit(path, "allowed", "five_hour", 0.5))
        story.tell(ev.AgentLimit(path, "warning", "five_hour", 0.9))
        story.tell(ev.AgentLimit(path, "reached", "five_hour"))
    assert log.said[:3] == [
        "↻ a  its backend tries again: no network",
        "⏸ a  limit of its backend: five hour 90% used",
        "⏸ a  limit of its backend: five hour reached",
    ]
    assert len(log.said) == 6


def test_a_large_group_speaks_for_the_backends_in_it(log: Log, story: Story) -> None:
    """A thousand agents without network are one line every 30 s."""
    story.group("review", 1000)
    for index in range(100):
        story.tell(ev.StepStarted(f"review/{index}/read", "agent"), after=0.0)
        story.tell(ev.AgentRetry(f"review/{index}/read", reason="no network"))
    assert log.said[1] == "↻ review  its backend tries again: no network"
    assert len(log.said) == 1 + 4


LINES = "compared:\n    got: 1\n  wanted: 2"


def test_an_error_keeps_its_lines(log: Log, story: Story) -> None:
    """Those after the first stand below it, indented, as they were."""
    story.run("check", status="failed", error=LINES)
    assert log.said[1:] == [
        "✗ check  python  failed  1.0 s  ValueError: compared:",
        "      got: 1",
        "    wanted: 2",
    ]


def test_a_group_names_the_member_that_failed(log: Log, story: Story) -> None:
    """The error is told once, at the step that failed; what is around it says where that is."""
    inner = f"step 'check' failed: {LINES}"
    story.start("outer", "parallel")
    story.group("outer/all", 2)
    story.member("outer/all/x")
    story.run("outer/all/x/check", status="failed", error=LINES)
    story.tell(
        ev.MemberCompleted("outer/all/x", 0, story.result("outer/all/x", "failed", error=inner))
    )
    told = f"member 'x' failed: {inner}; 1 more failed"
    story.end("outer/all", "failed", error=told)
    story.end("outer", "failed", error=f"member 'all' failed: {told}")
    assert [line for line in log.said if " at " in line] == [
        "✗ outer/all/x  failed  3.0 s  at check",
        (
            "✗ outer/all  for_each  failed  0 of 2 done · 1 failed · 1 not begun  4.0 s  "
            "at x/check; 1 more failed"
        ),
        "✗ outer  parallel  failed  0 done · 1 failed  6.0 s  at all/x/check",
    ]
    assert "".join(log.said).count("wanted: 2") == 1


def test_members_that_failed_and_did_not_fail_the_group_are_told_by_reason(
    log: Log, story: Story
) -> None:
    """Where no error of the group says so, its counts do, the most frequent reason first."""
    story.group("all", 200)
    for index in range(42):
        kind = "app.Timeout" if index < 3 else "app.Gone"
        story.member(f"all/{index}", index)
        result = story.result(f"all/{index}", "failed", error="no", error_type=kind)
        story.tell(ev.MemberCompleted(f"all/{index}", index, result))
    story.tell(ev.GroupCompleted("all", "for_each", 200, 19, 42, 9, 0), after=0)
    story.end("all")
    counts = "19 of 200 done · 42 failed · 9 cancelled · 130 not begun · Gone × 39, Timeout × 3"
    assert f"✓ all  for_each  {counts}  " in log.said[-1]


def test_an_error_of_the_groups_own_is_told(log: Log, story: Story) -> None:
    """What a group says besides its members' failures is not lost."""
    story.start("all", "parallel")
    story.run("all/x", status="failed", error="boom")
    story.end("all", "failed", error="1 of 3 members succeeded", error_type="app.GroupFailed")
    assert log.said[-1].endswith("GroupFailed: 1 of 3 members succeeded")


def test_the_error_of_a_default_is_told_once_too(log: Log, story: Story) -> None:
    """A group that a default took the place of names the member that failed."""
    story.start("all", "parallel")
    story.run("all/x", status="failed", error="boom")
    story.end("all", "defaulted", error="member 'x' failed: boom")
    assert log.said[-1] == "↷ all  parallel  defaulted  0 done · 1 failed  3.0 s  at x"


def test_a_failed_attempt_of_a_group_names_its_member(log: Log, story: Story) -> None:
    """A retry says where it failed; the member of a later attempt is named by its whole path."""
    story.start("all", "parallel")
    story.run("all/x", status="failed", error="boom")
    story.tell(ev.AttemptFailed("all", 1, "member 'x' failed: boom", "app.Busy"))
    story.tell(ev.TimerSet("all", story.at + 5, "retry"), after=0)
    story.run("all~2/x", status="failed", error="boom")
    story.end("all", "failed", attempts=2, error="member 'x' failed: boom")
    assert log.said[1] == "↻ all  attempt 1 failed, retrying in 5 s: at x"
    assert log.said[-1].endswith("×2  6.0 s  at all~2/x")


def test_a_step_that_is_long_at_work_is_told_now_and_then(log: Log, story: Story) -> None:
    """After a minute, then after twice as long each time, with what it does; waiting is no work."""
    story.begin()
    story.group("review", 2)
    story.member("review/a")
    story.start("review/a/read", "agent")
    story.tell(ev.StepOutput("review/a/read", "stdout", "page 3"), after=0)
    began = story.at
    told = [
        text_of(line)
        for after in range(0, 600, 15)
        for line in log.log.long_running(log.view, began + after)
    ]
    since = time.strftime("%H:%M", time.localtime(began))
    assert told == [
        f"▸ review/a/read  agent  at work for {spent}, since {since}: page 3"
        for spent in ("1 min", "2 min", "4 min", "8 min")
    ]
    story.end("review/a/read")
    assert [
        one for one in log.log.long_running(log.view, began + 6000) if "read" in text_of(one)
    ] == []


@pytest.mark.parametrize(
    ("done", "left", "spent_s", "text"),
    [
        (2, 98, 10.0, ""),
        (50, 50, 0.5, ""),
        (50, 100, 10.0, "5.0/s, 20 s left"),
        (10, 30, 600.0, "1.0/min, 30 min left"),
        (60, 0, 60.0, "1.0/s"),
    ],
)
def test_a_large_group_tells_its_pace(done: int, left: int, spent_s: float, text: str) -> None:
    """How many a second or minute, and how long the rest takes; not before it can be known."""
    assert pace(done, left, spent_s) == text


def test_what_agents_used_is_in_the_last_line(log: Log, story: Story) -> None:
    """Of steps that ended and of attempts that failed, tokens and dollars."""
    story.begin()
    story.start("a", "agent")
    story.tell(ev.AttemptFailed("a", 1, "no", "app.Busy", usage=Usage(1_000, 200, 0.1)))
    story.end("a", "succeeded", usage=Usage(2_000, 300, 0.3))
    line = ending(log.view, ev.WorkflowCompleted("succeeded", 1), UNICODE)
    assert "3k in, 500 out, $0.40" in text_of(line)
