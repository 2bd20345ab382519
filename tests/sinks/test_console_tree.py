"""LiveRun: what a row says, as events come in."""

# ruff: noqa: RUF001  # the console's signs are meant

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import OpenGate, Skipped, StepResult, Usage
from handrail.record.live_view import LiveRun
from handrail.sinks.console_lines import tree_lines
from handrail.sinks.console_text import ASCII, text_of
from handrail.testing.contracts.sample_events import sample_events, sample_progress
from tests.sinks.story import Story


@pytest.fixture
def tree() -> LiveRun:
    """The tree of a run that has not begun."""
    return LiveRun("ship-1")


@pytest.fixture
def story(tree: LiveRun) -> Story:
    """A run that the tree is told."""
    return Story(tree.apply)


def drawn(tree: LiveRun, height: int = 40, now: float | None = None) -> list[str]:
    """The lines of the tree as text."""
    return [text_of(line) for line in tree_lines(tree, height, now=now)]


def test_a_run_that_has_told_nothing_yet_has_its_id_for_a_name(tree: LiveRun) -> None:
    """There is a row for it before its first event."""
    assert tree.root.name == "ship-1"


def test_a_run_is_a_tree_of_its_steps(tree: LiveRun, story: Story) -> None:
    """Each step has a row with its sign, kind, attempts and time, below what it belongs to."""
    story.begin()
    story.run("plan", "agent", attempts=2)
    story.start("docs", "subworkflow")
    story.run("docs/spell", "command")
    story.start("docs/links", "command")
    assert drawn(tree, now=7.5) == [
        "⠴ ship  7.5 s  run ship-1",
        "├─ ✓ plan  agent  ×2  1.0 s",
        "└─ ⠴ docs  subworkflow  4.5 s",
        "   ├─ ✓ spell  command  1.0 s",
        "   └─ ⠴ links  command  1.5 s",
    ]


@pytest.mark.parametrize(
    ("status", "fields", "row"),
    [
        ("succeeded", {}, "✓ a  python  1.0 s"),
        ("failed", {}, "✗ a  python  1.0 s  ValueError: boom"),
        ("skipped", {"output": Skipped("not today"), "duration_ms": 0}, "⊘ a  python  not today"),
        ("defaulted", {"error": "no net"}, "↷ a  python  1.0 s  no net"),
        ("cancelled", {"error": "'b' failed"}, "⚑ a  python  1.0 s  'b' failed"),
    ],
)
def test_each_status_has_its_sign(
    tree: LiveRun, story: Story, status: str, fields: dict[str, Any], row: str
) -> None:
    """A row ends with what went wrong, if anything did."""
    story.begin()
    story.run("a", "python", status, **fields)
    assert drawn(tree)[1] == f"└─ {row}"


def test_a_running_step_shows_its_last_line(tree: LiveRun, story: Story) -> None:
    """What a command or an agent says last stands in its row until it ends."""
    story.begin()
    story.start("test", "command")
    story.tell(ev.StepOutput("test", "stdout", "collecting\n\x1b[32m12 passed\x1b[0m\n"), after=0)
    assert drawn(tree)[1] == "└─ ⠋ test  command  12 passed"
    story.tell(ev.StepOutput("test", "stdout", "\n"), after=0)
    assert drawn(tree)[1] == "└─ ⠋ test  command  12 passed"
    story.end("test")
    assert drawn(tree)[1] == "└─ ✓ test  command  1.0 s"


def test_a_reask_is_told(tree: LiveRun, story: Story) -> None:
    """The reason why an agent is asked again stands in its row."""
    story.begin()
    story.start("plan", "agent")
    story.tell(ev.AgentTurnStarted("plan", 1, "Plan it."), after=0)
    story.tell(ev.AgentMessage("plan", "Well"), after=0)
    assert drawn(tree)[1].endswith("Well")
    story.tell(ev.AgentTurnCompleted("plan", 1, "it is no JSON"), after=0)
    story.tell(ev.AgentTurnStarted("plan", 2, "Again."), after=0)
    assert drawn(tree)[1].endswith("asked again: it is no JSON")


def test_a_retry_is_waited_for_and_then_runs(tree: LiveRun, story: Story) -> None:
    """Between attempts the step waits; when the time has come it runs, without any event."""
    story.begin()
    story.start("call", "python")
    story.tell(ev.AttemptFailed("call", 1, "busy", "app.Overloaded"), after=0)
    story.tell(ev.TimerSet("call", story.at + 20, "retry"), after=0)
    assert drawn(tree)[1] == "└─ ⏸ call  python  retries in 20 s  failed once: Overloaded: busy"
    assert drawn(tree, now=22.0)[1] == "└─ ⠋ call  python  21 s  failed once: Overloaded: busy"


def test_a_gate_shows_its_question(tree: LiveRun, story: Story) -> None:
    """A gate waits with its question and choices, and the run with it, until it is answered."""
    story.begin()
    story.ask("merge?", "Merge it?", "yes", "no")
    assert drawn(tree) == [
        "⏸ ship  1.0 s  run ship-1",
        "└─ ⏸ merge?  ask  Merge it? [yes, no]",
    ]
    story.tell(ev.GateAnswered("merge?", "yes"))
    story.end("merge?")
    assert drawn(tree, now=3.0) == [
        "⠋ ship  3.0 s  run ship-1",
        "└─ ✓ merge?  ask  2.0 s  answered yes",
    ]


def test_a_signal_is_waited_for(tree: LiveRun, story: Story) -> None:
    """A step that waits for a signal says so."""
    story.begin()
    story.start("go", "wait_for", signal="deployed")
    assert drawn(tree)[1] == "└─ ⏸ go  wait_for  waits for the signal deployed"


def test_a_claim_is_waited_for(tree: LiveRun, story: Story) -> None:
    """A step waits while another has what it claims, and its row says who, until it has it."""
    story.begin()
    story.start("migrate", "holding")
    story.tell(ev.ClaimWaiting("migrate", "db", "step 'a' of run b"), after=0)
    assert drawn(tree) == [
        "⏸ ship  1.0 s  run ship-1",
        "└─ ⏸ migrate  holding  waits for db, behind step 'a' of run b",
    ]
    story.tell(ev.ClaimGranted("migrate", "db", 7))
    assert drawn(tree)[1] == "└─ ⠋ migrate  holding  1.0 s"


def test_a_timer_says_until_when(tree: LiveRun, story: Story) -> None:
    """A sleeping step shows when it is due; deadlines of others are no waiting."""
    story.begin()
    story.start("pause", "sleep")
    story.tell(ev.TimerSet("pause", 31.0, "sleep"), after=0)
    story.start("work", "validate")
    story.tell(ev.TimerSet("work", 99.0, "timeout"), after=0)
    assert drawn(tree)[1:] == ["├─ ⏸ pause  sleep  1.0 s  in 29 s", "└─ ⠋ work  validate"]


def test_rounds_of_a_validation_fold_into_a_row_each(tree: LiveRun, story: Story) -> None:
    """A finished round lists its stages and its fix; the one at work has rows for what runs."""
    story.begin()
    story.start("verify", "validate")
    story.round("verify", 1, tests=False, compile=True)
    story.start("verify/1/fix", "agent")
    assert drawn(tree, now=6.0)[1:] == [
        "└─ ⠋ verify  validate  5.0 s",
        "   └─ ✗ round 1: tests ✗, compile ✓  4.0 s",
        "      └─ ⠋ fix  agent",
    ]
    story.end("verify/1/fix")
    story.run("verify/2/tests", "stage")
    story.start("verify/2/compile", "stage")
    assert drawn(tree, now=10.0)[2:] == [
        "   ├─ ✗ round 1: tests ✗, compile ✓; fix ✓  5.0 s  tests: exit code 1",
        "   └─ ⠋ round 2: tests ✓  2.0 s",
        "      └─ ⠋ compile  stage",
    ]


def test_the_last_round_ends_with_the_validation(tree: LiveRun, story: Story) -> None:
    """A round has no event of its own to end with."""
    story.begin()
    story.start("verify", "validate")
    story.round("verify", 1, tests=True)
    story.end("verify")
    assert drawn(tree, now=9.0)[1:] == [
        "└─ ✓ verify  validate  3.0 s",
        "   └─ ✓ round 1: tests ✓  1.0 s",
    ]
    assert len(tree._steps) == 0


def test_another_attempt_of_a_composite_starts_afresh(tree: LiveRun, story: Story) -> None:
    """What the first attempt ran makes room for what the second one runs, below the same row."""
    story.begin()
    story.start("verify", "validate")
    story.round("verify", 1, tests=False)
    story.tell(ev.AttemptFailed("verify", 1, "did not pass", "handrail.errors.ValidationFailed"))
    story.round("verify~2", 1, tests=True)
    story.end("verify", attempts=2)
    assert drawn(tree)[1:] == [
        "└─ ✓ verify  validate  ×2  6.0 s",
        "   └─ ✓ round 1: tests ✓  1.0 s",
    ]


def test_a_fallback_stands_below_its_step(tree: LiveRun, story: Story) -> None:
    """The step that `on_error` chose is a child of the one that failed."""
    story.begin()
    story.start("call")
    story.run("call/cached")
    story.end("call")
    assert drawn(tree)[1:] == ["└─ ✓ call  python  3.0 s", "   └─ ✓ cached  python  1.0 s"]


def test_a_group_counts_its_members(tree: LiveRun, story: Story) -> None:
    """Running, waiting, failed and done members are counted in the group's row."""
    story.begin()
    story.group("review", 5)
    for index in range(5):
        story.member(f"review/{index}", index)
        story.start(f"review/{index}/read", "command")
    story.end("review/0/read")
    story.member_ends("review/0")
    story.end("review/1/read", "failed")
    story.member_ends("review/1", "failed")
    story.ask("review/2/sure?", "Sure?")
    story.end("review/2/read")
    assert drawn(tree)[1] == (
        "└─ ⠋ review  for_each  1 of 5 done · 2 running · 1 waiting · 1 failed  11 s"
    )


def test_a_group_of_unknown_size_counts_what_is_done(tree: LiveRun, story: Story) -> None:
    """Without a size there is no total and no bar."""
    story.begin()
    story.group("review", None)
    for index in range(20):
        story.member(f"review/{index}", index)
        story.member_ends(f"review/{index}")
    assert "  20 done  " in drawn(tree)[1]


def test_what_an_agent_is_at_is_in_its_row(tree: LiveRun, story: Story) -> None:
    """Tools, limits and refusals take each other's place; lines of its program are not shown."""
    story.begin()
    story.start("code", "agent")
    for event, said in [
        (ev.AgentReasoning("code", "First\nlook at it."), "look at it."),
        (ev.AgentToolStarted("code", "t", "Bash", {"n": 1, "command": "ls -l"}), "Bash ls -l"),
        (ev.AgentToolCompleted("code", "t", "Bash"), "Bash ls -l"),
        (ev.AgentToolCompleted("code", "t", "Bash", ok=False, output="a\nno"), "Bash failed: no"),
        (ev.AgentPermission("code", "Write", "denied", "read only"), "denied Write: read only"),
        (ev.AgentPermission("code", "Read", "allowed"), "denied Write: read only"),
        (ev.AgentRetry("code", 2, 1.5, "529"), "its backend tries again in 1.5 s (retry 2): 529"),
        (ev.AgentCompaction("code", "started"), "compacts its session"),
        (ev.AgentLimit("code", "allowed", "five_hour", 0.1), "compacts its session"),
        (
            ev.AgentLimit("code", "warning", "five_hour", 0.9),
            "limit of its backend: five hour 90% used",
        ),
        (
            ev.AgentLimit("code", "reached", reset_at=20.0),
            "limit of its backend reached, opens again in 19 s",
        ),
        (ev.AgentTranscript("code", "{}"), "limit of its backend reached, opens again in 19 s"),
        (ev.AgentUsage("code", Usage(1)), "limit of its backend reached, opens again in 19 s"),
    ]:
        story.tell(event, after=0)
        assert drawn(tree, now=story.at)[1].endswith(f" agent  {said}"), event


def test_a_cap_that_is_waited_for_is_in_the_row(tree: LiveRun, story: Story) -> None:
    """The row says which cap, whose it is, and how long it lasts."""
    story.begin()
    story.start("code", "agent")
    wait = Launch(2, rung="wait")
    story.tell(ev.LadderStep("code", 1, "usage_cap", "used up", wait, 32.0, "claude"))
    story.tell(ev.TimerSet("code", 32.0, "cap"), after=0)
    assert drawn(tree) == [
        "⏸ ship  2.0 s  run ship-1",
        "└─ ⏸ code  agent  1.0 s  usage cap, claude in 30 s  failed once: used up",
    ]
    assert drawn(tree, now=33.0)[1] == "└─ ⠋ code  agent  32 s  failed once: used up"


def test_another_rung_is_said_in_the_row(tree: LiveRun, story: Story) -> None:
    """What follows a failure at once, or needs a person, takes the place of what was said."""
    story.begin()
    story.start("code", "agent")
    again = Launch(2, rung="reask")
    story.tell(ev.LadderStep("code", 1, "invalid_output", "no JSON", again, backend="claude"))
    assert drawn(tree)[1].endswith("  asks again: invalid output, claude")
    story.tell(ev.LadderStep("code", 1, "auth", "log in", Launch(3), parked=True))
    assert drawn(tree)[1].endswith("  needs a person: auth: log in")
    story.tell(ev.BudgetWarning("code", "", "cost_usd", 0.9, 1.0))
    assert drawn(tree)[0] == "⠋ ship  4.0 s  budget: used 0.9 of 1 cost_usd  run ship-1"


def test_a_large_group_has_a_bar(tree: LiveRun, story: Story) -> None:
    """While it runs, a bar shows how far it is."""
    story.begin()
    story.group("review", 100)
    for index in range(50):
        story.member(f"review/{index}", index)
        story.member_ends(f"review/{index}")
    assert "━━━━━━╌╌╌╌╌╌ 50 of 100 done" in drawn(tree)[1]


def test_the_counts_of_the_end_stand(tree: LiveRun, story: Story) -> None:
    """Members that came from the record without an event are counted when the group ends."""
    story.begin()
    story.group("review", 40)
    story.tell(ev.GroupCompleted("review", "for_each", 40, 38, 2, 0, 0))
    story.end("review")
    assert drawn(tree)[1:] == [
        "└─ ✓ review  for_each  38 of 40 done · 2 failed  2.0 s",
    ]


def test_a_replayed_step_is_marked(tree: LiveRun, story: Story) -> None:
    """What came from the record is there, and said to be."""
    story.tell(ev.RunResumed())
    story.tell(ev.StepReplayed("plan", StepResult("plan", "plan", "agent", "succeeded")))
    story.tell(ev.StepReplayed("old"))
    story.tell(ev.StepReplayed("each", StepResult("each", "each", "for_each", "succeeded")))
    assert drawn(tree)[1:] == [
        "├─ ✓ plan  agent  recorded",
        "├─ ✓ old  recorded",
        "└─ ✓ each  for_each  recorded",
    ]
    assert tree.replayed == 3


def test_a_suspended_run_stops_its_clock(tree: LiveRun, story: Story) -> None:
    """What is still open when the run is suspended stays as it is."""
    story.begin()
    story.ask("merge?", "Merge it?")
    story.tell(ev.RunSuspended((OpenGate("merge?", "Merge it?"),)))
    assert drawn(tree, now=500.0) == [
        "⏸ ship  2.0 s  run ship-1",
        "└─ ⏸ merge?  ask  1.0 s  Merge it?",
    ]


def test_an_interrupted_step_is_neither_done_nor_failed(tree: LiveRun, story: Story) -> None:
    """It will run again, and its row says why it stopped."""
    story.begin()
    story.start("build", "command")
    story.tell(ev.StepInterrupted("build", "SIGTERM"))
    assert drawn(tree)[1] == "└─ ⏸ build  command  1.0 s  SIGTERM"


def test_cancelling_and_limits_are_said_of_the_run(tree: LiveRun, story: Story) -> None:
    """While a run unwinds, its row says why."""
    story.begin()
    story.start("build")
    story.tell(ev.CancelRequested("enough"), after=0)
    assert drawn(tree)[0] == "⠋ ship  1.0 s  cancelling: enough  run ship-1"
    story.tell(ev.LimitReached("max_steps", 10), after=0)
    assert drawn(tree)[0] == "⠋ ship  1.0 s  reached the limit max_steps=10  run ship-1"


def test_rollbacks_have_rows(tree: LiveRun, story: Story) -> None:
    """Each rollback is shown, with its error if it failed."""
    story.begin()
    story.tell(ev.RollbackStarted("db/migrate"))
    story.tell(ev.RollbackCompleted("db/migrate"))
    story.tell(ev.RollbackStarted("plan"))
    story.tell(ev.RollbackCompleted("plan", "no way back", "builtins.OSError"))
    assert drawn(tree)[1:] == [
        "├─ ✓ undo db/migrate  rollback  1.0 s",
        "└─ ✗ undo plan  rollback  1.0 s  OSError: no way back",
    ]


def test_a_child_workflow_of_another_name_is_named(tree: LiveRun, story: Story) -> None:
    """The step's name need not tell which workflow it runs."""
    story.begin()
    story.start("docs", "subworkflow")
    story.tell(ev.SubworkflowStarted("docs", "write_docs"), after=0)
    assert drawn(tree)[1] == "└─ ⠋ docs  subworkflow  write_docs"


def test_what_is_open_when_its_parent_ends_is_closed(tree: LiveRun, story: Story) -> None:
    """A row never goes on running below one that has ended."""
    story.begin()
    story.start("docs", "subworkflow")
    story.start("docs/spell")
    story.end("docs", "cancelled")
    assert drawn(tree, now=99.0)[1:] == [
        "└─ ⚑ docs  subworkflow  2.0 s",
        "   └─ ⚑ spell  python  1.0 s",
    ]


def test_ascii_is_enough(tree: LiveRun, story: Story) -> None:
    """With ASCII glyphs every line is ASCII."""
    story.begin()
    story.run("plan", "agent", "failed", attempts=2)
    story.group("review", 50)
    for index in range(30):
        story.member(f"review/{index}", index)
    lines = [text_of(line) for line in tree_lines(tree, 20, glyphs=ASCII)]
    assert all(line.isascii() for line in lines)
    assert lines[1] == "|- x plan  agent  x2  1.0 s  ValueError: boom"


# -- cost ----------------------------------------------------------------------------------------


def calls_made(work: Callable[[], object]) -> int:
    """How many Python and C calls a function makes: a measure of work without a clock."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def crowd(members: int, ended: int) -> tuple[LiveRun, Story]:
    """A group with this many members started, and this many of them ended."""
    tree = LiveRun("ship-1")
    story = Story(tree.apply)
    story.begin()
    story.group("review", members)
    for index in range(members):
        story.member(f"review/{index}", index)
        story.start(f"review/{index}/read")
    for index in range(ended):
        story.end(f"review/{index}/read")
        story.member_ends(f"review/{index}", "failed" if index % 3 == 0 else "succeeded")
    return tree, story


@pytest.mark.parametrize("ended", [0.0, 0.5, 1.0])
def test_drawing_does_not_cost_more_for_more_members(ended: float) -> None:
    """A group of 5,000 is drawn with the work that a group of 100 takes."""
    small, large = (crowd(count, int(count * ended))[0] for count in (100, 5_000))
    assert (
        calls_made(lambda: tree_lines(large, 30)) <= calls_made(lambda: tree_lines(small, 30)) * 1.1
    )


def test_an_event_does_not_cost_more_for_more_members() -> None:
    """The end of a member among 5,000 is noted with the work that it takes among 100."""
    costs: list[int] = []
    for count in (100, 5_000):
        _, story = crowd(count, count // 2)
        story.end(f"review/{count - 2}/read")
        ended = ev.MemberCompleted(f"review/{count - 2}", 0, story.result("x", "succeeded"))
        costs.append(calls_made(partial(story.tell, ended)))
    assert costs[1] <= costs[0] * 1.1


def known_of(tree: LiveRun) -> int:
    """How much the record behind a tree holds, in all of its collections."""
    return sum(
        len(value)
        for value in vars(tree._recorded).values()
        if isinstance(value, (dict, list, set))
    )


def test_the_record_behind_a_tree_stays_small() -> None:
    """Agents that asked, failed, were rolled back and paid leave nothing behind once they ended."""
    tree = LiveRun("ship-1")
    story = Story(tree.apply)
    story.begin()
    sizes: list[int] = []
    for index in range(20):
        path = f"code-{index}"
        story.start(path, "agent", once=True)
        story.tell(ev.ClaimWaiting(path, "src", "ann"))
        story.tell(ev.ClaimGranted(path, "src", 1))
        story.tell(ev.GateOpened(f"{path}/budget-1", OpenGate(f"{path}/budget-1", "More?")))
        story.tell(ev.GateAnswered(f"{path}/budget-1", "yes"))
        story.tell(ev.BudgetReserved(path, 1))
        story.tell(ev.AgentSessionStarted(path, "s"))
        story.tell(ev.SandboxDenied(path, "/etc", "output"))
        story.tell(ev.LadderStep(path, 1, "transient", "no", Launch(2), session="s"))
        story.tell(ev.AgentGuided(path, 1, Launch(3), (1,), ("ann",)))
        story.tell(ev.RunSteered("skip", path))
        story.tell(ev.AttemptFailed(path, 1, "no", "E", usage=Usage(1, 1)))
        story.end(path, attempts=2, usage=Usage(1, 1))
        story.tell(ev.BudgetSettled(path, 1, Usage(1, 1)))
        story.tell(ev.RollbackStarted(path))
        story.tell(ev.RollbackCompleted(path))
        sizes.append(known_of(tree))
    assert sizes[0] == sizes[-1] < 10


def test_what_is_remembered_is_bounded() -> None:
    """Of 5,000 finished members, and of 5,000 steps in a row, only some are kept."""
    tree, story = crowd(5_000, 5_000)
    story.end("review")
    for index in range(5_000):
        story.run(f"step-{index}")
    kept, above = 0, [tree.root]
    while above:
        node = above.pop()
        below = [*node.live_children(), *node.kept_in("failed"), *node.kept_in("done")]
        above += below
        kept += len(below)
    assert kept < 500
    assert len(tree._steps) == 0


# -- odd data ------------------------------------------------------------------------------------

PARTS = st.sampled_from(["a", "b", "1", "2", "a~2", "b~3", "~", "", "x\ud800", "é\n", "\0"])
PATHS = st.one_of(
    st.lists(PARTS, min_size=1, max_size=4).map("/".join),
    st.just("a/" * 200 + "a"),
)
KINDS = st.sampled_from(["python", "validate", "for_each", "parallel", "ask", "wait_for", ""])
TEXTS = st.one_of(st.text(), st.just("\x1b[2J\r\n"))
STATUSES = st.sampled_from(["succeeded", "failed", "skipped", "defaulted", "cancelled"])
NUMBERS = st.one_of(st.integers(-3, 50), st.floats(allow_nan=False, allow_infinity=False))


@st.composite
def step_results(draw: st.DrawFn) -> StepResult[Any]:
    """A result of any status."""
    return StepResult(
        "a", "a", draw(KINDS), draw(STATUSES), None, draw(TEXTS) or "x", draw(TEXTS),
        duration_ms=draw(st.floats(0, 1e12)), attempts=draw(st.integers(0, 5)),
    )  # fmt: skip


EVENTS = st.one_of(
    st.sampled_from([*sample_events(), *sample_progress()]),
    st.builds(ev.StepStarted, PATHS, KINDS),
    st.builds(ev.StepCompleted, PATHS, step_results()),
    st.builds(ev.AttemptFailed, PATHS, st.integers(0, 9), TEXTS, TEXTS),
    st.builds(ev.GroupStarted, PATHS, KINDS, st.none() | st.integers(-1, 50)),
    st.builds(ev.GroupCompleted, PATHS, KINDS, st.integers(-1, 9), st.integers(-1, 9)),
    st.builds(ev.MemberStarted, PATHS, st.integers(), TEXTS),
    st.builds(ev.MemberCompleted, PATHS, st.integers(), step_results()),
    st.builds(ev.TimerSet, PATHS, NUMBERS, st.sampled_from(["retry", "sleep", "cap", "gate"])),
    st.builds(ev.StepOutput, PATHS, st.just("stdout"), TEXTS),
    st.builds(ev.StepReplayed, PATHS, st.none() | step_results()),
    st.builds(ev.StepInterrupted, PATHS, TEXTS),
    st.builds(ev.GateAnswered, PATHS, TEXTS),
    st.builds(ev.RollbackStarted, PATHS),
    st.builds(ev.RollbackCompleted, PATHS, st.none() | TEXTS),
    st.builds(ev.WorkflowCompleted, st.sampled_from(["succeeded", "failed", "cancelled"])),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(EVENTS, NUMBERS), max_size=30), st.integers(-2, 40))
def test_no_sequence_of_events_breaks_the_tree(told: list[tuple[Any, float]], height: int) -> None:
    """Whatever comes in whatever order, the tree draws printable lines that fit."""
    tree = LiveRun("odd")
    for seq, (event, at) in enumerate(told):
        tree.apply(ev.stamp(event, "odd", seq, at))
        if seq % 7 and seq != len(told) - 1:
            continue
        lines = tree_lines(tree, height)
        assert 1 <= len(lines) <= max(2, height)
        assert all(text_of(line).isprintable() for line in lines)


def test_a_group_points_to_the_member_that_failed(tree: LiveRun, story: Story) -> None:
    """The error stands in the row of the step that failed; what is around it says where."""
    story.begin()
    story.start("all", "parallel")
    story.run("all/x", status="failed", error="boom\n  bang")
    story.end("all", "failed", error="member 'x' failed: boom\n  bang; 1 more failed")
    assert drawn(tree)[1:] == [
        "└─ ✗ all  parallel  0 done · 1 failed  3.0 s  at x; 1 more failed",
        "   └─ ✗ x  python  1.0 s  ValueError: boom",
    ]


def test_much_output_of_a_stage_is_its_first_line_and_the_test_that_failed(
    tree: LiveRun, story: Story
) -> None:
    """What a test runner printed does not run over the rows below."""
    story.begin()
    story.start("verify", "validate")
    much = "exit code 1: .FF\n" + "=" * 70 + "\nFAIL: test_pages"
    story.run("verify/1/tests", "stage", status="failed", error=much)
    story.end("verify", "failed", error=much)
    assert [row for row in drawn(tree) if "verify" in row] == [
        "└─ ✗ verify  validate  3.0 s  ValueError: exit code 1: .FF ... FAIL: test_pages"
    ]


def test_a_group_that_is_folded_says_its_members_error(tree: LiveRun, story: Story) -> None:
    """Where there is no room for the member's row, its error is in the group's."""
    story.begin()
    story.start("all", "parallel")
    story.run("all/x", status="failed", error="boom")
    story.end("all", "failed", error="member 'x' failed: boom")
    for name in "abcd":
        story.start(name)
    assert "  at x: ValueError: boom" in " ".join(drawn(tree, height=6))


def test_a_budgets_question_ends_with_its_answer(tree: LiveRun, story: Story) -> None:
    """It is no step, so nothing else ends it; the agent goes on."""
    story.begin()
    story.start("code", "agent")
    story.tell(
        ev.GateOpened("code/budget-1", OpenGate("code/budget-1", "More?", ("stop", "allow")))
    )
    assert drawn(tree)[2] == "   └─ ⏸ budget-1  ask  More? [stop, allow]"
    story.tell(ev.GateAnswered("code/budget-1", "allow", "ana"))
    assert drawn(tree, now=3.0)[1:] == [
        "└─ ⠋ code  agent  2.0 s",
        "   └─ ✓ budget-1  ask  1.0 s  answered allow by ana",
    ]
