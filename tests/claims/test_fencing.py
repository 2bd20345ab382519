"""A holder that is killed, one that is stopped and comes back, and circles of waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    ClaimDeadlock,
    ClaimLost,
    Executor,
    MemorySink,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.ports.agent import AgentTurn
from handrail.ports.claims import Claim, Claimant, ClaimRequest, Resource
from handrail.testing import FakeBackend
from handrail.workspace.claims.local import LocalClaims
from handrail.workspace.claims.resources import common_of, files_of
from handrail.workspace.git import repository_of
from tests.agents.repositories import contents, needs_git, repository, write

pytestmark = needs_git
LEASE_S = 0.5
RUN = """
import sys
from pathlib import Path
from handrail import Agent, AgentOptions, Executor, FakeBackend, step, workflow
from handrail.workspace.claims.local import LocalClaims

repo, how = Path(sys.argv[1]), sys.argv[2]

def work(turn=None):
    (repo / "src/a.py").write_text("by the run")
    print("begun", flush=True)
    sys.stdin.readline()
    (repo / "docs/guide.md").write_text("by the run")
    return "done"

agent = Agent("a", "work", backend=FakeBackend([work]), options=AgentOptions(cwd=str(repo)))

def held():
    yield from step("work").call(work)

@workflow
def flow():
    if how == "agent":
        yield from step("s").agent(agent, writes=["src/**"])
    else:
        yield from step("s").holding(["src/**"], held)

result = Executor(claims=LocalClaims(lease_s=float(sys.argv[3]))).run_sync(flow)
print(result.error)
sys.exit(not result.success)
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, which is the current folder."""
    made = repository(tmp_path / "repo")
    monkeypatch.chdir(made)
    return made


class Holder:
    """A process whose run holds ``src/**``, and is at work. Mutable."""

    def __init__(self, repo: Path, how: str) -> None:
        words = [sys.executable, "-c", RUN, str(repo), how, str(LEASE_S)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, cwd=repo, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begun\n"

    def went_on(self) -> tuple[int, str]:
        """Let it do the rest; its exit code, and what it said."""
        said, _ = self.process.communicate("go on\n", timeout=60)
        return self.process.returncode, said

    def end(self) -> None:
        """Have nothing left of it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture(params=["agent", "holding"])
def holder(repo: Path, request: pytest.FixtureRequest) -> Iterator[Holder]:
    """One that holds by ``writes=``, and one by ``.holding``."""
    made = Holder(repo, request.param)
    try:
        yield made
    finally:
        made.end()


async def claimed(repo: Path, claims: LocalClaims) -> Claim:
    """What the run holds, for somebody else."""
    found = await repository_of(repo, "test")
    assert found is not None
    resource = files_of(found, ["src/a.py"])
    return await claims.acquire(ClaimRequest(Claimant("other"), (resource,), wait_s=30))


def test_who_waits_for_a_killed_holder_has_it_in_half_a_second(repo: Path, holder: Holder) -> None:
    """From the kill to the grant."""

    async def waited() -> float:
        claims = LocalClaims()
        granted = float("inf")

        async def wait() -> None:
            nonlocal granted
            await claimed(repo, claims)
            granted = time.monotonic()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while not (await LocalClaims(str(repo / ".git")).listed()).waiting:  # noqa: ASYNC110
                await anyio.sleep(0.005)
            holder.process.kill()
            killed = time.monotonic()
        await claims.close()
        return granted - killed

    assert anyio.run(waited) < 0.5


def test_a_stopped_holder_that_comes_back_merges_nothing(repo: Path, holder: Holder) -> None:
    """Its claim was taken by who waited; it fails, and what the other wrote stays."""

    async def take() -> None:
        claims = LocalClaims()
        await claimed(repo, claims)
        write(repo, {"src/a.py": "by the other"})
        await claims.close()

    os.kill(holder.process.pid, signal.SIGSTOP)
    anyio.run(take)
    os.kill(holder.process.pid, signal.SIGCONT)
    code, said = holder.went_on()
    assert code == 1
    assert "lost its claim of src/** (epoch " in said
    assert contents(repo)["src/a.py"][1] == b"by the other"


def test_a_stopped_holder_that_nobody_waited_for_goes_on(repo: Path) -> None:
    """It has its claim still, however long it was stopped."""
    holder = Holder(repo, "holding")
    try:
        os.kill(holder.process.pid, signal.SIGSTOP)
        (claim,) = anyio.run(LocalClaims(str(repo / ".git")).listed).held
        while time.time() < claim.since + 2 * LEASE_S:
            time.sleep(0.02)  # noqa: TID251  # the lease is of real time
        os.kill(holder.process.pid, signal.SIGCONT)
        assert holder.went_on() == (0, "None\n")
    finally:
        holder.end()


def test_a_circle_is_refused_with_all_who_are_in_it(repo: Path) -> None:
    """Two members hold a folder each, and want that of the other: one fails, and is told why."""
    both = threading.Barrier(2)

    def meet(_: str) -> bool:
        both.wait(10)
        return True

    def cross(other: str) -> Steps[Any]:
        yield from step("meet").call(meet, other)
        return (yield from step("want").holding([f"{other}/**"], lambda: step("x").call(len, "x")))

    @workflow
    def flow() -> Steps[Any]:
        return (
            yield from step("all").parallel(
                step("one").holding(["docs/**"], cross, "src"),
                step("two").holding(["src/**"], cross, "docs"),
                on_error="continue",
            )
        )

    result = Executor().run_sync(flow)
    failed = [one for one in result.value if not one.success]
    assert len(failed) == 1
    (name,) = (one.name for one in failed)
    other, theirs = ("two", "src/**") if name == "one" else ("one", "docs/**")
    cause = result.step(f"all/{name}/want")
    assert cause.is_a(ClaimDeadlock)
    assert f"waits for {theirs}, which step 'all/{other}' of run flow-" in str(cause.error)
    assert f"which step 'all/{name}' of run flow-" in str(cause.error)


def test_who_does_not_want_to_wait_longer_falls_back(repo: Path) -> None:
    """`wait=` ends in a failure like others, and names who has it."""

    @workflow
    def late() -> Steps[str]:
        return (yield from step("late").call(len, "x").holds("git", wait=1).default(0))

    held = LocalClaims()

    async def refused() -> Any:
        resource = Resource("git", repository=await common_of(repo, "test"))
        await held.acquire(ClaimRequest(Claimant("ann", kind="person"), (resource,)))
        result = await Executor().run(late)
        await held.close()
        return result

    result = anyio.run(refused)
    assert (result.value, result.step("late").status) == (0, "defaulted")
    assert "ann" in str(result.step("late").error)


async def taken() -> None:
    """Take away what the step that performs this holds."""
    claims = LocalClaims(".git")
    for held in (await claims.listed()).held:
        await claims.release(held)


def thief() -> Agent[str]:
    """An agent that loses its claim at work, after it wrote a file."""

    async def work(_: AgentTurn) -> str:
        await taken()
        return "done"

    return Agent("thief", "Work.", backend=FakeBackend([work]))


def holding() -> Steps[Any]:
    """The body of a step that holds a claim over it."""
    return (yield from step("in").call(taken))


LOSES: dict[str, Callable[[], Any]] = {
    "s": lambda: step("s").call(taken).holds("git"),
    "s/in": lambda: step("s").holding("git", holding),
    "writes": lambda: step("writes").agent(thief(), writes=["a.txt"]),
}


@pytest.mark.parametrize("path", LOSES)
def test_a_lost_claim_is_an_error_and_an_event_of_its_kind(repo: Path, path: str) -> None:
    """Whoever is given the failed step can ask for it, `is_a(ClaimLost)`, and sinks are told once,
    whatever the claim was taken for.
    """

    @workflow
    def flow() -> Steps[None]:
        yield from LOSES[path]()

    sink = MemorySink()
    assert Executor(sinks=[sink]).run_sync(flow).step(path).is_a(ClaimLost)
    assert [one.path for one in sink.events if isinstance(one, ev.ClaimLost)] == [path]
