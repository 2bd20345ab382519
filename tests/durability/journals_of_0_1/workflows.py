"""Workflows that use everything whose name is in a journal."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from actions import (
    WORLD,
    Broken,
    VeryBroken,
    act,
    act_in_thread,
    breaks,
    did,
    dies_undoing,
    dies_until,
    fails_until,
    failure_for_unserializable,
    flaky,
    in_second_attempt_of_group,
    interrupted_until,
    no,
    undo,
    undo_in_vain,
    yes,
)
from values import Box, Colour, Task

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    Backoff,
    Budget,
    BudgetExceeded,
    CommandFailed,
    CommandNotFound,
    GroupFailed,
    HandrailError,
    InvalidAnswer,
    Ladder,
    NoArmChosen,
    Stage,
    Step,
    StepFailed,
    StepIsPoisonous,
    Steps,
    StepTimeout,
    StepWasInterrupted,
    Usage,
    ValidationFailed,
    WorkflowContext,
    WorkflowError,
    WorkflowFailed,
    current,
    step,
    workflow,
)

# -- composition -----------------------------------------------------------------------------------


def a_member(item: str) -> Step[Any]:
    """The step of one item."""
    return step("do").call(act, item.upper())


def some_break(item: str) -> Step[Any]:
    """The same; one of them fails."""
    return step("do").call(breaks, item) if item == "b" else step("do").call(act, Task(item))


def a_body(item: str) -> Steps[Box[str]]:
    """A body of two steps and a group, that returns something else than any of them."""
    first = yield from step("first").call(act, item)
    yield from step("both").parallel(step("x").call(act, 1), step("y").call(act_in_thread, 2))
    with contextlib.suppress(StepFailed):
        yield from step("broken").call(breaks, item)
    return Box(first)


@workflow("child")
def child(number: int, *, task: Task) -> Steps[Task]:
    """A child that has a child."""
    yield from step("work").call(act, number)
    if number > 1:
        inner = yield from step("child").run_workflow(child, number - 1, task=task)
        return inner.unwrap()
    yield from step("spare").call(breaks).default("a default")
    return task


@workflow("failing child")
def failing_child() -> Steps[None]:
    """A child that fails, after something that can be undone."""
    yield from step("made").call(act, "made").with_rollback(undo)
    yield from step("broken").call(breaks, "child")


def passes_later(context: WorkflowContext) -> bool:
    """Passes from the second round on."""
    did()
    return "/2/" in current().path


def says_so(context: WorkflowContext) -> str:
    """A stage that says something."""
    did()
    return "fine"


@workflow("composed")
def composed(mark: str) -> Steps[dict[str, Any]]:
    """Groups of every mode, a race, branches, children, fallbacks, rounds, retries."""
    out: dict[str, Any] = {}
    out["both"] = yield from step("both").parallel(
        step("one").call(act, Task("one")), step("other").call(act_in_thread, (1, 2))
    )
    some = yield from step("some").parallel(
        step("good").call(act, 1),
        step("bad").call(breaks),
        step("not").call(act).when(no),
        on_error="continue",
    )
    out["some"] = [(one.path, one.status, one.output, one.is_a(Broken)) for one in some]
    out["all"] = yield from step("all").parallel(
        step("one").call(act, 1).with_rollback(undo),
        step("two").call(act, 2),
        on_error="all_or_nothing",
    )
    out["each"] = yield from step("each").for_each(["a", "b"], a_member, key=str)
    out["window"] = yield from step("window").for_each(
        {"k/1": "a", "k%2": "b", "3": "c"}, a_body, max_concurrency=2
    )
    kept = yield from step("kept").for_each(["a", "b", "c"], some_break, on_error="continue")
    out["kept"] = [(one.path, one.status, one.output) for one in kept]
    out["won"] = yield from step("won").race(
        step("slow").sleep(3600), step("quick").call(act, "quick")
    )
    chosen = yield from step("choose").branch(
        (no, step("left").call(act, "left")), (yes, step("right").call(act, Task("right")))
    )
    out["choose"] = (chosen.index, chosen.name, chosen.output)
    whole = yield from step("child").run_workflow(child, 2, task=Task("child"))
    out["child"] = (whole.value, whole.degraded, [one.path for one in whole.step_results])
    out["mended"] = yield from step("mend").call(breaks).on_error(failure_for_unserializable)
    out["spare"] = yield from step("spare").call(breaks).default(Task("spare"))
    out["skipped"] = yield from step("skipped").call(breaks).skip_on_error()
    out["unless"] = yield from step("unless").call(act).when(no)
    out["when"] = yield from step("when").call(act, "when").when(yes)
    out["flaky"] = yield from step("flaky").call(flaky, 2).retry(3, backoff=Backoff(jitter=0.5))
    out["again"] = (
        yield from step("again")
        .parallel(step("one").call(in_second_attempt_of_group), step("two").call(act, 2))
        .retry(2, backoff=0)
    )
    checked = yield from step("check").validate(
        [Stage("later", passes_later), Stage("says", says_so), Stage("program", "true")],
        retry=2,
        on_failure=step("fix").call(act, "fixed"),
    )
    out["check"] = (checked.passed, len(checked.rounds), [one.name for one in checked.stages])
    said = yield from step("program").command(["printf", "[1, 2]"], parse=list[int])
    out["program"] = (said.exit_code, said.data)
    out["shell"] = (yield from step("shell").command("exit 3", check=False)).exit_code
    yield from step("saved").call(act, mark).checkpoint()
    out["once"] = yield from step("once").call(act, "once").once()
    out["inline"] = yield from step("inline").python(len, ("four",)).inline()
    yield from step("nested").parallel(
        step("for").for_each([1, 2], nested),
        step("race").race(step("a").call(act, "a").timeout(5)),
    )
    out["last"] = yield from step("last").call(act, mark)
    return out


def nested(item: int) -> Steps[Any]:
    """A group in a child in a member of a group."""
    inner = yield from step("child").run_workflow(child, item, task=Task(f"of {item}"))
    yield from step("all").parallel(step("a").call(act, item), on_error="all_or_nothing")
    return inner


KINDS: dict[str, type[BaseException]] = {
    one.__name__: one
    for one in (
        AgentError,
        Broken,
        BudgetExceeded,
        CommandFailed,
        CommandNotFound,
        GroupFailed,
        HandrailError,
        InvalidAnswer,
        NoArmChosen,
        StepFailed,
        StepIsPoisonous,
        StepTimeout,
        StepWasInterrupted,
        ValidationFailed,
        VeryBroken,
        WorkflowError,
        WorkflowFailed,
        Exception,
        LookupError,
        OSError,
    )
}


def ends_by_itself() -> Steps[None]:
    """A body that raises."""
    yield from step("before").call(act)
    raise WorkflowError("enough")


@workflow("ends by itself")
def ending_child() -> Steps[None]:
    """A child that raises."""
    yield from ends_by_itself()


def too_long() -> Steps[None]:
    """A body that waits for too long."""
    yield from step("nap").sleep(3600)


@workflow("raises")
def raises() -> Steps[None]:
    """A child whose body raises an error of its own."""
    yield from step("before").call(act)
    raise VeryBroken("of the body")


@workflow("failures")
def failures(dies: bool = False) -> Steps[dict[str, Any]]:
    """Every kind of failure that a body can go on from, and what it is told of each."""
    worker = Agent("worker", "Work.")
    tries: list[Step[Any]] = [
        step("action").call(breaks, "action"),
        step("lookup").python({}.__getitem__, ("k",)),
        step("command").command(["sh", "-c", "echo out; echo err >&2; exit 4"]),
        step("no program").command(["no-such-program-anywhere"]),
        step("deadline").parallel(step("nap").sleep(3600)).timeout(60),
        step("asked").ask("Anybody?", timeout=60),
        step("group").parallel(step("a").call(breaks), step("b").call(act), on_error="fail_fast"),
        step("all").parallel(
            step("a").call(act).with_rollback(undo),
            step("b").call(breaks),
            on_error="all_or_nothing",
        ),
        step("each").for_each(["a", "b"], some_break, key=str, max_concurrency=1),
        step("body").for_each([1], lambda _: ends_by_itself()),
        step("race").race(step("a").call(breaks), step("b").call(breaks, "b")),
        step("branch").branch((no, step("a").call(act))),
        step("child").subworkflow(failing_child),
        step("raising child").subworkflow(raises),
        step("ended child").subworkflow(ending_child),
        step("checks").validate(
            [Stage("never", breaks)], retry=1, on_failure=step("fix").call(act)
        ),
        step("agent").agent(worker),
        step("costly")
        .parallel(step("agent").agent(worker), step("more").agent(worker))
        .budget(Budget(launches=1)),
        step("fallback").call(breaks).on_error(lambda context, failed: step("too").call(breaks)),
        step("retried").call(flaky, 9).retry(2, backoff=1, on=(Broken,)),
        step("not retried").call(breaks).retry(2, on=(LookupError,)),
        step("predicate").call(act).when(lambda context: 1 // 0 == 0),
        step("context").agent(worker, lambda context: {"a": context.results["none"]}),
    ]
    told: dict[str, Any] = {}
    for one in tries:
        try:
            yield from one
        except StepFailed as failed:
            result = failed.result
            told[one.name] = sorted(name for name, kind in KINDS.items() if result.is_a(kind))
            output = result.output
            told[f"{one.name} gave"] = type(output).__name__
        yield from step(f"{one.name} was").call(act, str(told.get(one.name)))
    if dies:
        yield from step("dies").call(dies_until, 3)
    return told


# -- waiting ---------------------------------------------------------------------------------------


@workflow("waits")
def waits(*, question: str = "Merge?") -> Steps[dict[str, Any]]:
    """Questions, signals and pauses."""
    out: dict[str, Any] = {}
    out["early"] = yield from step("early").wait_for("go", int)
    out["merge"] = yield from step("merge?").ask(question, choices=("yes", "no"))
    out["count"] = yield from step("count").ask("How many?", type=int)
    out["task"] = yield from step("task").wait_for("task", Task)
    out["nobody"] = yield from step("nobody").ask("Anybody?", default="no", timeout=600)
    yield from step("nap").sleep(3600)
    yield from step("until").sleep(datetime(2024, 2, 1, tzinfo=UTC))
    out["both"] = yield from step("both").parallel(
        step("signal").wait_for("go"),
        step("sure?").ask("Sure?", choices=(Colour.RED, Colour.BLUE)),
        step("work").call(act, "work"),
    )
    out["late"] = yield from step("late").wait_for("late").timeout(86_400).default("never")
    return out


def question_now() -> str:
    """Another one in the second life, which stays."""
    return f"Version {min(WORLD.life, 2)}?"


@workflow("asks again")
def asks_again() -> Steps[list[Any]]:
    """A question whose words are others in the second life, beside one that stays."""
    first = yield from step("first").call(act, "first")
    both = yield from step("both").parallel(
        step("changes").ask(question_now()), step("stays").ask("Stays?", type=Box[int])
    )
    unfit = yield from step("unfit").wait_for("number", int).retry(2, backoff=0)
    return [first, both, unfit]


# -- undoing ---------------------------------------------------------------------------------------


@workflow("moves")
def moves(fails: bool) -> Steps[str]:
    """Two steps that can be undone."""
    yield from step("one").call(act, 1).with_rollback(undo)
    yield from step("two").call(act, 2).with_rollback(undo)
    if fails:
        yield from step("broken").call(breaks)
    return "moved"


@workflow("undone")
def undone(how: Literal["quietly", "in vain", "killed"] = "quietly", until: int = 9) -> Steps[str]:
    """Steps that are undone at the end: by a failure that goes away in a later life."""
    yield from step("first").call(act, 1).with_rollback(undo)
    with contextlib.suppress(StepFailed):
        yield from step("child").subworkflow(moves, {"fails": True})
    yield from step("kept child").subworkflow(moves, {"fails": False})
    action = {"quietly": undo, "in vain": undo_in_vain, "killed": dies_undoing}[how]
    yield from step("second").call(act, 2).with_rollback(action)
    yield from step("each").for_each(
        ["a", "b"], lambda item: step("do").call(act, item).with_rollback(undo)
    )
    try:
        yield from step("end").call(fails_until, until, "end")
    finally:
        yield from step("clean up").call(act, "clean")
    return "done"


@workflow("cancelled")
def cancelled(dies: bool = False) -> Steps[str]:
    """Waits for nobody, and is cancelled."""
    yield from step("first").call(act, 1).with_rollback(undo)
    try:
        yield from step("both").parallel(
            step("ok?").ask("Go on?"),
            step("made").call(act, "made").with_rollback(undo),
            step("child").subworkflow(waiting_child),
        )
    finally:
        yield from step("clean up").call(dies_until if dies else act, 3)
    return "done"


@workflow("waiting child")
def waiting_child() -> Steps[Any]:
    """A child that waits."""
    yield from step("before").call(act, "before").with_rollback(undo)
    return (yield from step("go").wait_for("go"))


# -- killed and interrupted ------------------------------------------------------------------------


@workflow("killed")
def killed() -> Steps[list[Any]]:
    """Processes that die within steps; one step must not run twice."""
    out: list[Any] = []
    out.append((yield from step("alone").call(dies_until, 2, "alone")))
    try:
        yield from step("charge").call(dies_until, 3, "charged").once()
    except StepFailed as failed:
        out.append(failed.result.is_a(StepWasInterrupted))
    out.append(
        (
            yield from step("both").parallel(
                step("quick").call(act, "quick"),
                step("dies").call(dies_until, 4, "late"),
                max_concurrency=1,
            )
        )
    )
    out.append((yield from step("ctrl-c").call(interrupted_until, 5)))
    try:
        yield from step("poison").call(dies_until, 9)
    except StepFailed as failed:
        out.append(failed.result.is_a(StepIsPoisonous))
    out.append((yield from step("last").call(dies_until, 8, "last")))
    return out


@workflow("half way")
def half_way() -> Steps[list[Any]]:
    """Groups, children and rounds whose processes died half way."""
    each = yield from step("each").for_each(
        ["a", "b", "c"], a_body_that_dies, key=str, max_concurrency=1
    )
    inner = yield from step("child").subworkflow(dying_child)
    checked = yield from step("check").validate(
        [Stage("later", passes_later)], retry=1, on_failure=step("fix").call(dies_until, 4)
    )
    tried = yield from step("tried").call(flaky, 1).retry(2, backoff=3600)
    mended = (
        yield from step("mend")
        .call(breaks)
        .on_error(lambda context, failed: step("instead").call(dies_until, 5, "mended"))
    )
    chosen = yield from step("choose").branch((yes, step("a").call(dies_until, 6, "a")))
    return [each, inner.value, checked.passed, tried, mended, chosen.output]


def a_body_that_dies(item: str) -> Steps[str]:
    """Two steps; the second one of b ends its process."""
    yield from step("first").call(act, item)
    if item == "b":
        yield from step("second").call(dies_until, 2)
    return item * 2


@workflow("dying child")
def dying_child() -> Steps[str]:
    """A child with a step that ends its process."""
    yield from step("first").call(act).with_rollback(undo)
    yield from step("second").call(dies_until, 3)
    return "survived"


# -- changed code ----------------------------------------------------------------------------------


@workflow("moved")
def moved() -> Steps[list[Any]]:
    """Another order, and other steps, in its second life; it fails in the first two."""
    names = ["a", "b", "gone"] if WORLD.life == 1 else ["b", "new", "a"]
    out: list[Any] = []
    for name in names:
        made = yield from step(name).call(act, name)
        out += [made]
    members = [step(name).call(act, name) for name in names]
    members.append(step("end").call(fails_until, 3))
    grouped = yield from step("group").parallel(*members, max_concurrency=1)
    each = yield from step("each").for_each(["x"], a_moved_body, key=str)
    inner = yield from step("child").subworkflow(moved_child)
    return [out, grouped, each, inner.value]


def a_moved_body(item: str) -> Steps[str]:
    """A body that leaves a step out in its later lives, and fails first."""
    if WORLD.life <= 3:
        yield from step("left").call(act, "left")
    yield from step("do").call(act, item)
    yield from step("end").call(fails_until, 4)
    return item


@workflow("moved child")
def moved_child() -> Steps[str]:
    """A child that leaves a step out in its later lives, and fails first."""
    if WORLD.life <= 3:
        yield from step("left").call(act, "left")
    yield from step("end").call(fails_until, 5)
    return "child"


@workflow("tried again")
def tried_again() -> Steps[list[Any]]:
    """A run that fails in its first lives, in a group, in a child and in its own body."""
    out: list[Any] = [(yield from step("first").call(act, "first"))]
    with contextlib.suppress(StepFailed):
        yield from step("handled").call(breaks)
    out.append(
        (
            yield from step("group").parallel(
                step("good").call(act, "good").with_rollback(undo),
                step("bad").call(fails_until, 2, "at last"),
                step("waits").sleep(3600),
                max_concurrency=1,
            )
        )
    )
    whole = yield from step("child").subworkflow(failing_first)
    out.append(whole.value)
    if WORLD.life <= 3:
        raise Broken("the body itself")
    out.append((yield from step("last").call(act, "last")))
    return out


@workflow("failing first")
def failing_first() -> Steps[str]:
    """A child that fails in the second life."""
    yield from step("made").call(act, "made").with_rollback(undo)
    yield from step("bad").call(fails_until, 3)
    return "child"


@workflow("chosen")
def chosen(version: str = "1") -> Steps[list[Any]]:
    """A succeeded run that is run again from a step; one whose argument changed is kept."""
    first = yield from step("first").call(act, "first")
    kept = yield from step("kept").call(act, f"kept in life {WORLD.life}")
    second = yield from step("second").call(fails_until, 2, version)
    return [first, kept, second]


@workflow("limited")
def limited(steps: int) -> Steps[int]:
    """Many steps."""
    for number in range(steps):
        yield from step(f"s{number}").call(act, number)
    return steps


# -- agents ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Review:
    """What the reviewer answers."""

    verdict: Literal["good", "bad"]
    notes: tuple[str, ...] = ()


REVIEWER = Agent("reviewer", "Review {{ what }}.", output=Review)
WRITER = Agent(
    "writer",
    "Write about {{ what }}.",
    ladder=Ladder(backoff=Backoff(initial_s=5.0, jitter=0.0)),
)


def context_of(context: WorkflowContext) -> dict[str, Any]:
    """Built from what is there."""
    return {"what": f"step {len(context.results)}"}


@workflow("agents")
def agents(dies: bool = False) -> Steps[list[Any]]:
    """Sessions, re-asks, rungs of the ladder, budgets."""
    out: list[Any] = []
    first = yield from step("review").agent(REVIEWER, {"what": "a.py"})
    out.append((first.output, first.model, first.session, first.attempts, first.usage))
    more = yield from step("more").agent(REVIEWER, context_of, session=first)
    out.append(more.output)
    text = yield from step("write").agent(WRITER, {"what": "it"})
    out.append((text.output, text.attempts))
    out.append((yield from step("text").generate(WRITER, {"what": "text"})))
    out.append(
        (yield from step("made").generate(lambda context: f"made of {context['a']}", {"a": 1}))
    )
    both = yield from (
        step("both")
        .parallel(
            step("one").agent(WRITER, {"what": "one"}),
            step("two").agent(WRITER, {"what": "two"}),
            max_concurrency=1,
        )
        .budget(Budget(tokens=10_000, usd=9.0, soft=0.01))
    )
    out.append([one.output for one in both])
    last = yield from step("last").agent(WRITER, {"what": "last"})
    out.append((last.output, last.session))
    return out


def session_reply(text: Any, number: int, tokens: int = 100) -> AgentReply:
    """An answer in a session, that used so much."""
    used = Usage(input_tokens=tokens, output_tokens=1, cost_usd=0.01)
    if isinstance(text, str):
        return AgentReply(text, "m-1", f"s-{number}", used, session_usage=used)
    return AgentReply("", "m-1", f"s-{number}", used, text, has_value=True)


@workflow("asks for money")
def asks_for_money() -> Steps[list[str]]:
    """More than its budget allows."""
    out: list[str] = []
    for number in range(3):
        made = yield from step(f"s{number}").agent(WRITER, {"what": str(number)})
        out.append(made.output)
    return out


@workflow("capped")
def capped() -> Steps[Any]:
    """An agent whose cap lasts too long to be waited for, then one that nobody logged in."""
    one = yield from step("one").agent(WRITER, {"what": "one"})
    two = yield from step("two").agent(REVIEWER, {"what": "two"})
    return [one.output, two.output]
