"""What a step tells its agent is refused before the run starts, where the source shows it."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import handrail
from handrail import (
    Agent,
    AgentOptions,
    DefinitionError,
    Executor,
    FakeBackend,
    MemoryJournal,
    MemorySink,
    StepFailed,
    Steps,
    step,
    workflow,
)
from handrail.ports.agent import AgentReply, AgentTurn
from tests.engine.support import boom, same

CODER = Agent("coder", "Work.", backend="codex")
BARE = Agent("bare", "Work.")
DEMANDING = Agent("demanding", "Work.", options=AgentOptions(max_turns=3))
FEW = AgentOptions(max_turns=3)
CODEX = "codex"
SWAPPED = FEW
HONOURED = r"agent '\w+': backend 'codex' cannot honour max_turns\. Those that can: claude, api\."


def swap() -> None:
    """Change what a name of this module stands for, as nobody should."""
    global SWAPPED  # noqa: PLW0603  # that is the point
    SWAPPED = AgentOptions()


class Modest:
    """A backend that honours no option."""

    name = "modest"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Answer."""
        return AgentReply(f"done: {turn.prompt}")


EASY = AgentOptions()
MODEST = Agent("modest", "Work.", backend=Modest())
RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each test begins with no step run."""
    RAN.clear()


def note(name: str = "before") -> str:
    """What the steps before the agent's do."""
    RAN.append(name)
    return name


# -- refused ---------------------------------------------------------------------------------------


@workflow
def plain() -> Steps[Any]:
    """An agent that is told too much, after a step that does something."""
    yield from step("before").call(note)
    return (yield from step("code").agent(CODER, options=AgentOptions(max_turns=3)))


async def test_it_is_refused_before_anything_ran() -> None:
    """No step ran, no event was shown, and the journal has no run."""
    journal, sink = MemoryJournal(), MemorySink()
    executor = Executor(journal=journal, sinks=[sink])
    with pytest.raises(DefinitionError, match=HONOURED):
        await executor.run(plain)
    with pytest.raises(DefinitionError, match=HONOURED):
        executor.stream(plain)
    with pytest.raises(DefinitionError, match=HONOURED):
        await executor.options(run_id="mine").run(plain)
    assert (RAN, list(sink.events), list(journal.runs())) == ([], [], [])


def test_it_is_refused_by_the_sync_forms_too() -> None:
    """``run_sync``, and a workflow that is called."""
    for start in (Executor().run_sync, lambda flow: flow()):
        with pytest.raises(DefinitionError, match=HONOURED):
            start(plain)
    assert RAN == []


def test_the_error_names_the_place_and_the_step() -> None:
    """The file, and the line on which the step is written."""
    line = plain.definition.function.__code__.co_firstlineno + 4
    with pytest.raises(DefinitionError) as caught:
        plain()
    assert str(caught.value).startswith(f"{__file__}:{line}: step 'code': agent 'coder': ")


def in_a_loop() -> Steps[Any]:
    """Under for, while True, with and try."""
    for number in range(2):
        while True:
            with contextlib.suppress(ValueError):
                try:
                    yield from step(f"code-{number}").agent(CODER, options=FEW)
                finally:
                    pass
            break


def helper(name: str) -> Steps[Any]:
    """A helper of this module."""
    return (yield from step(name).agent(CODER, options=FEW))


def by_a_helper() -> Steps[Any]:
    """In a function that is driven by ``yield from``."""
    yield from helper("code")


def in_a_group() -> Steps[Any]:
    """As a member."""
    yield from step("both").parallel(step("a").call(note), step("b").agent(CODER, options=FEW))


def one(item: int) -> Any:
    """A step for an item."""
    return step(f"code-{item}").agent(CODER, options=FEW).retry(2)


def for_each_item() -> Steps[Any]:
    """In a body."""
    yield from step("all").for_each([1, 2], one)


def as_a_fix() -> Steps[Any]:
    """As what mends a validation."""
    yield from step("check").validate([same], on_failure=step("fix").agent(CODER, options=FEW))


def of_a_child() -> Steps[Any]:
    """In a workflow that is run as a step."""
    yield from step("before").call(note)
    yield from step("child").subworkflow(plain)


def by_a_name() -> Steps[Any]:
    """Backend, model and options are names; the agent is a local."""
    coder = BARE
    yield from step("code").agent(coder, backend=CODEX, options=FEW)


def by_an_attribute() -> Steps[Any]:
    """The class of options is that of the package."""
    yield from step("code").agent(CODER, options=handrail.AgentOptions(max_turns=3))


def later() -> Steps[Any]:
    """A step that is put together on two lines."""
    code = step("code").agent(CODER, options=FEW)
    yield from code.retry(2)


@pytest.mark.parametrize(
    "function",
    [
        in_a_loop, by_a_helper, in_a_group, for_each_item, as_a_fix, of_a_child, by_a_name,
        by_an_attribute, later,
    ],
)  # fmt: skip
async def test_it_is_found_where_the_run_comes_by_it(function: Callable[[], Steps[Any]]) -> None:
    """In loops and blocks, helpers, groups, fixes and children; under names of the module."""
    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor().run(workflow(function))
    assert RAN == []


async def test_names_of_the_function_around_count() -> None:
    """A workflow that is made by a function has what that was given."""

    def made(coder: Agent[str], options: AgentOptions) -> Any:
        @workflow
        def flow() -> Steps[Any]:
            yield from step("before").call(note)
            yield from step("code").agent(coder, options=options)

        return flow

    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor().run(made(CODER, FEW))
    fake = Agent("fake", "Work.", backend=FakeBackend(["done"]))
    assert (await Executor().run(made(fake, AgentOptions()))).success
    assert RAN == ["before"]


@workflow
def left_open() -> Steps[Any]:
    """An agent whose backend is the run's to say, told by agent and by a generator."""
    yield from step("before").call(note)
    yield from step("code").agent(DEMANDING)


@workflow
def written() -> Steps[Any]:
    """The same, for text."""
    yield from step("before").call(note)
    yield from step("code").generate(DEMANDING)


@pytest.mark.parametrize("flow", [left_open, written])
async def test_the_settings_of_the_run_count(flow: Any) -> None:
    """The agent's options and the run's backend do not go together."""
    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor(backend="codex").run(flow)
    assert RAN == []
    capable = FakeBackend(["done"])
    assert (await Executor(backend=capable).run(flow)).success


async def test_the_environment_of_the_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """HANDRAIL_BACKEND is looked at where nothing is nearer."""
    monkeypatch.setenv("HANDRAIL_BACKEND", "codex")
    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor().run(left_open)


async def test_a_backend_to_fall_back_on_counts() -> None:
    """Each of the chain must honour what it is told."""
    chained = Agent("chained", "Work.", backend="claude", fallback=["codex"])

    @workflow
    def flow() -> Steps[Any]:
        yield from step("code").agent(chained, options=FEW)

    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor().run(flow)


async def test_a_backend_that_there_is_not_is_refused() -> None:
    """With what was meant."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("before").call(note)
        yield from step("code").agent(BARE, backend="claud")

    with pytest.raises(DefinitionError, match=r"no backend 'claud'\. Did you mean 'claude'"):
        await Executor().run(flow)
    assert RAN == []


# -- not refused early -----------------------------------------------------------------------------


def under_if(codex: bool = True) -> Steps[Any]:
    """The other arm."""
    if codex:
        yield from step("before").call(note)
    else:
        yield from step("code").agent(DEMANDING)


def under_match(backend: str = "codex") -> Steps[Any]:
    """The other case."""
    match backend:
        case "codex":
            yield from step("before").call(note)
        case _:
            yield from step("code").agent(DEMANDING)


def after_a_way_out(backend: str = "codex") -> Steps[Any]:
    """What comes after a return that a condition decides."""
    yield from step("before").call(note)
    if backend == "codex":
        return
    yield from step("code").agent(DEMANDING)


def after_a_way_out_by_a_name(backend: str = "codex") -> Steps[Any]:
    """The same, where the step names a backend that the module knows by then."""
    yield from step("before").call(note)
    if backend == CODEX:
        return
    yield from step("code").agent(BARE, backend=CODEX, options=FEW)


def after_a_raise_in_a_helper() -> Steps[Any]:
    """What comes after a helper that may end it all."""
    try:
        yield from refusing()
        yield from step("again").agent(DEMANDING)
    except ValueError:
        yield from step("before").call(note)


def refusing(backend: str = "codex") -> Steps[Any]:
    """A helper that may raise."""
    if backend == "codex":
        raise ValueError
    yield from step("code").agent(DEMANDING)


def in_a_while(left: int = 0) -> Steps[Any]:
    """A loop that need not begin."""
    yield from step("before").call(note)
    while left:
        yield from step("code").agent(DEMANDING)


def in_an_except() -> Steps[Any]:
    """What happens if something else fails."""
    try:
        yield from step("before").call(note)
    except StepFailed:
        yield from step("code").agent(DEMANDING)


def as_an_expression(codex: bool = True) -> Steps[Any]:
    """Conditional expressions."""
    yield from step("before").call(note)
    yield from step("a").call(same) if codex else step("code").agent(DEMANDING)
    codex or (yield step("b").agent(DEMANDING))


def when_asked() -> Steps[Any]:
    """With ``when``."""
    yield from step("before").call(note)
    yield from step("code").agent(DEMANDING).when(lambda _: False)


def as_an_arm() -> Steps[Any]:
    """As an arm, of which another is taken."""
    yield from step("which").branch(
        (lambda _: True, step("before").call(note)),
        (lambda _: True, step("code").agent(DEMANDING)),
    )


def as_a_fallback() -> Steps[Any]:
    """As what stands in for a failure."""
    yield from step("before").call(note).on_error(lambda *_: step("code").agent(DEMANDING))


def as_some_members(backend: str = "codex") -> Steps[Any]:
    """Of which none is left."""
    yield from step("before").call(note)
    yield from step("all").parallel(
        step("a").call(same),
        *[step(f"code-{one}").agent(DEMANDING) for one in "ab" if backend != "codex"],
    )


@pytest.mark.parametrize(
    "function",
    [
        under_if, under_match, after_a_way_out, after_a_way_out_by_a_name,
        after_a_raise_in_a_helper, in_a_while, in_an_except, as_an_expression, when_asked,
        as_an_arm, as_a_fallback, as_some_members,
    ],
)  # fmt: skip
async def test_what_a_condition_decides_is_left_to_the_run(function: Any) -> None:
    """It may be there for the sake of this very backend."""
    result = await Executor(backend="codex").run(workflow(function))
    assert (result.status, RAN) == ("succeeded", ["before"])


@pytest.mark.parametrize("decided", [False, True])
async def test_what_is_wrong_in_every_run_is_refused_after_a_way_out_too(decided: bool) -> None:
    """A step that names its backend itself is not made right by a condition before it."""

    @workflow
    def flow(go_on: bool) -> Steps[Any]:
        yield from step("before").call(note)
        if not go_on:
            return
        yield from step("code").agent(BARE, backend="codex", options=AgentOptions(max_turns=3))

    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor().run(flow, decided)
    assert RAN == []


def by_an_input(turns: int = 3) -> Steps[Any]:
    """A number that the run is given."""
    yield from step("before").call(note)
    yield from step("code").agent(CODER, options=AgentOptions(max_turns=turns))


def by_a_result() -> Steps[Any]:
    """A backend that a step gives."""
    backend = yield from step("before").call(lambda: note() and "codex")
    yield from step("code").agent(BARE, backend=backend, options=FEW)


def by_a_local() -> Steps[Any]:
    """A variable that has more than one value."""
    options = AgentOptions()
    yield from step("before").call(note)
    options = FEW
    yield from step("code").agent(CODER, options=options)


def by_a_call() -> Steps[Any]:
    """Options that a function makes."""
    yield from step("before").call(note)
    yield from step("code").agent(CODER, options=same(FEW))


def by_stars() -> Steps[Any]:
    """Arguments that stand elsewhere."""
    stars: Any = {"options": FEW}
    yield from step("before").call(note)
    yield from step("code").agent(CODER, **stars)


def by_a_loops_variable() -> Steps[Any]:
    """An agent that is one of several."""
    yield from step("before").call(note)
    for coder in (CODER,):
        yield from step("code").agent(coder, options=FEW)


def by_a_parameter() -> Steps[Any]:
    """An agent that a lambda is given."""
    yield from step("before").call(note)
    yield from step("all").for_each([FEW], lambda FEW: step("code").agent(CODER, options=FEW))  # noqa: N803


def by_a_capture() -> Steps[Any]:
    """A name of the module that a pattern binds anew."""
    yield from step("before").call(note)
    match AgentOptions(max_turns=4):
        case FEW:  # noqa: N806
            pass
    yield from step("code").agent(CODER, options=FEW)


@pytest.mark.parametrize(
    "function",
    [
        by_an_input, by_a_result, by_a_local, by_a_call, by_stars, by_a_loops_variable,
        by_a_parameter, by_a_capture,
    ],
)  # fmt: skip
async def test_what_the_source_does_not_say_is_refused_when_it_is_reached(function: Any) -> None:
    """The step fails with the same words, after those before it ran."""
    result = await Executor().run(workflow(function))
    assert RAN == ["before"]
    assert "backend 'codex' cannot honour max_turns. Those that can" in (result.error or "")


async def test_a_name_that_the_module_changes_is_left_to_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the time the step is reached it may stand for something else."""
    monkeypatch.setitem(globals(), "SWAPPED", FEW)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("before").call(swap)
        yield from step("code").agent(BARE, options=SWAPPED)

    assert (await Executor(backend=Modest()).run(flow)).success


def easy() -> Steps[Any]:
    """A helper that uses a name of the module."""
    yield from step("easy").agent(MODEST, options=EASY)


async def test_a_helper_does_not_see_the_names_around_the_workflow() -> None:
    """Where a function around the workflow has a name of the module, its helper has the latter."""
    fake = Agent("fake", "Work.", backend=FakeBackend(["done"]))

    def made(EASY: AgentOptions) -> Any:  # noqa: N803
        @workflow
        def flow() -> Steps[Any]:
            yield from easy()
            yield from step("hard").agent(fake, options=EASY)

        return flow

    assert (await Executor().run(made(FEW))).success


async def test_options_that_are_no_options_are_the_steps_to_refuse() -> None:
    """A number out of range, a backend that is none: the step says so when it is reached."""

    @workflow
    def negative() -> Steps[Any]:
        yield from step("code").agent(CODER, options=AgentOptions(max_turns=-1))

    @workflow
    def no_backend() -> Steps[Any]:
        yield from step("code").agent(CODER, backend=3)  # type: ignore[arg-type]

    assert "max_turns" in ((await Executor().run(negative)).error or "")
    assert "backend= takes a backend" in ((await Executor().run(no_backend)).error or "")


async def test_an_agent_in_its_place_is_asked_instead() -> None:
    """With ``Executor(agents=)`` the backend of the one that is written does not matter."""
    fake = Agent("coder", "Work.", backend=FakeBackend(["done"]))
    assert (await Executor(agents={"coder": fake}).run(plain)).success
    with pytest.raises(DefinitionError, match=HONOURED):
        await Executor(agents={"coder": CODER}).run(plain)


async def test_an_agent_without_a_backend_fails_its_step() -> None:
    """That nobody names one is told when it is launched."""
    result = await Executor().run(left_open)
    assert RAN == ["before"]
    assert "it has no backend" in (result.error or "")


async def test_a_workflow_without_source_is_refused_when_it_is_reached() -> None:
    """Of code that was made from text nothing is known beforehand."""
    text = (
        "def flow():\n"
        "    yield from step('before').call(note)\n"
        "    yield from step('code').agent(CODER, options=FEW)\n"
    )
    names: dict[str, Any] = {"step": step, "note": note, "CODER": CODER, "FEW": FEW}
    exec(text, names)
    result = await Executor().run(workflow(names["flow"]))
    assert RAN == ["before"]
    assert "cannot honour max_turns" in (result.error or "")


# -- resumed runs ----------------------------------------------------------------------------------


@workflow
def asking() -> Steps[Any]:
    """A run that waits before its agent's turn."""
    yield from step("draft").agent(BARE)
    yield from step("go").ask("Go on?")
    yield from step("before").call(note)
    yield from step("code").agent(DEMANDING)


async def test_a_resumed_run_is_refused_as_it_was() -> None:
    """With a backend that cannot, nothing is recorded; with one that can, it goes on."""
    journal = MemoryJournal()
    fake = FakeBackend(["draft", "done"])
    suspended = await Executor(journal=journal, backend=fake).run(asking)
    run_id = suspended.run_id
    executor = Executor(journal=journal, backend="codex")
    await executor.answer(run_id, "go", "yes")
    known = list(journal.events(run_id))
    with pytest.raises(DefinitionError, match=HONOURED):
        await executor.resume(run_id, asking)
    async with contextlib.AsyncExitStack() as stack:
        run = await stack.enter_async_context(executor.stream_resume(run_id, asking))
        with pytest.raises(DefinitionError, match=HONOURED):
            _ = [event async for event in run]
        with contextlib.suppress(DefinitionError):
            await stack.aclose()
    assert (list(journal.events(run_id)), RAN) == (known, [])
    resumed = await Executor(journal=journal, backend=fake).resume(run_id, asking)
    assert (resumed.success, RAN) == (True, ["before"])


@workflow
def failing() -> Steps[Any]:
    """A run whose agent has answered, and that fails after it."""
    yield from step("code").agent(DEMANDING)
    yield from step("after").call(boom)


async def test_a_step_that_a_resumed_run_has_got_past_is_not_refused() -> None:
    """Its answer is recorded, so it does not matter which backend would be asked now."""
    journal = MemoryJournal()
    first = await Executor(journal=journal, backend=FakeBackend(["done"])).run(failing)
    executor = Executor(journal=journal, backend="codex")
    resumed = await executor.resume(first.run_id, failing)
    assert (resumed.error, resumed.step("code").replayed) == (first.error, True)
    with pytest.raises(DefinitionError, match=HONOURED):
        await executor.resume(first.run_id, failing, rerun=["code"])


async def test_a_run_is_cancelled_whatever_it_is_told() -> None:
    """Unwinding asks no agent."""
    journal = MemoryJournal()
    suspended = await Executor(journal=journal, backend=FakeBackend(["draft"])).run(asking)
    ended = await Executor(journal=journal, backend="codex").cancel(suspended.run_id, "no", asking)
    assert ended is not None
    assert ended.status == "cancelled"


# -- what it costs ---------------------------------------------------------------------------------

QUIET = """
import sys
from handrail import step, workflow

def same(value=None):
    return value

def helper():
    yield from step("b").call(same)

@workflow
def child():
    yield from step("c").call(same)

@workflow
def flow():
    yield from step("a").call(same)
    yield from helper()
    yield from step("child").run_workflow(child)

assert flow().success
names = ("handrail.static.outline", "handrail.agents.agent")
print(*(name for name in names if name in sys.modules))
"""


def test_no_source_is_read_where_no_agent_is_named(tmp_path: Path) -> None:
    """The names in the code of a workflow, its helpers and its children say that there is none."""
    file = tmp_path / "quiet.py"
    file.write_text(QUIET)
    done = subprocess.run(
        [sys.executable, str(file)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == ""


def test_the_source_of_a_workflow_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run knows what the first one read, although the file is gone."""
    file = tmp_path / "flows_read_once.py"
    file.write_text(
        "from handrail import step, workflow\n"
        "from tests.engine.test_options_refused_early import CODER, FEW\n\n"
        "@workflow\ndef flow():\n    yield from step('code').agent(CODER, options=FEW)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flow = importlib.import_module("flows_read_once").flow
    for _ in range(2):
        with pytest.raises(DefinitionError, match=HONOURED):
            flow()
        file.unlink(missing_ok=True)
        linecache.clearcache()
