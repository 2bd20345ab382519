"""The Orchestrator: what it asks a protocol for, what it keeps, and where it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import DefinitionError, InsideEventLoop, RunLocked, SqliteJournal, WrongUse
from handrail.work import Orchestrator, TaskResult, TaskSpec
from tests.cli.conftest import Cli
from tests.cli.machines import until

Seen = tuple[list[str], list[str], str]

TREE = {"a": ["a1", "a2"], "b": ["b1"], "a1": ["a11"]}
ALL = ["a", "a1", "a11", "a2", "b", "b1"]


@dataclass
class Growing:
    """A protocol that grows as a tree says, and remembers what it was asked. Mutable."""

    tree: dict[str, list[str]] = field(default_factory=lambda: TREE)
    roots: list[str] = field(default_factory=lambda: ["a", "b"])
    fails: set[str] = field(default_factory=set[str])
    seen: list[Seen] = field(default_factory=list[Seen])
    begun: list[str] = field(default_factory=list[str])
    given: list[Any] = field(default_factory=list[Any])

    def load(self) -> list[TaskSpec]:
        """The tasks of the start."""
        return [TaskSpec(one, payload={"depth": 0}) for one in self.roots]

    def checkpoint(self, queued: list[TaskSpec], running: list[TaskSpec], status: str) -> None:
        """Remember the ids."""
        self.seen.append(([one.id for one in queued], [one.id for one in running], status))

    def make_coro(self, spec: TaskSpec) -> Any:
        """One task."""
        return self._run(spec)

    async def _run(self, spec: TaskSpec) -> TaskResult:
        self.begun.append(spec.id)
        await anyio.lowlevel.checkpoint()
        if spec.id in self.fails:
            raise OSError(f"{spec.id} is broken")
        deeper = {"depth": spec.payload["depth"] + 1}
        return TaskResult([TaskSpec(one, payload=deeper) for one in self.tree.get(spec.id, [])])

    async def on_result(self, spec: TaskSpec, result: TaskResult) -> list[TaskSpec]:
        """Take the children as they are."""
        self.given.append((spec, result))
        return result.children

    def summarize(self, workdir: Path) -> str:
        """How many there were."""
        return f"# {len(self.given)} results in {workdir.name}\n"


async def test_all_that_a_protocol_grows_is_done_once(tmp_path: Path) -> None:
    """Its own objects are given back to it, what waits and what is at work is kept, and a report
    written at the end.
    """
    protocol = Growing()
    await Orchestrator(protocol, tmp_path / "w", max_concurrency=2).run()
    assert Counter(protocol.begun) == Counter(ALL)
    depths = {spec.id: spec.payload["depth"] for spec, _ in protocol.given}
    assert depths == {"a": 0, "b": 0, "a1": 1, "a2": 1, "b1": 1, "a11": 2}
    assert protocol.seen[0] == (["a", "b"], [], "running")
    assert protocol.seen[2] == ([], ["a", "b"], "running")
    assert [one for one in protocol.seen if one[2] != "running"] == [([], [], "stopped")]
    assert max(len(running) for _, running, _ in protocol.seen) == 2
    assert (tmp_path / "w" / "report.md").read_text() == "# 6 results in w\n"


async def test_a_protocol_can_be_given_as_workflow(tmp_path: Path) -> None:
    """The work is then kept in the protocol's own folder, if it has one."""
    protocol: Any = Growing()
    protocol.workdir = tmp_path
    await Orchestrator(workflow=protocol, max_concurrency=1).run()
    assert (tmp_path / "report.md").exists()
    for wrong in ({}, {"protocol": protocol, "workflow": protocol}):
        with pytest.raises(WrongUse, match="takes one protocol"):
            Orchestrator(**wrong, max_concurrency=1)


async def test_the_most_urgent_spec_is_next(tmp_path: Path) -> None:
    """Lower numbers begin first; what is kept is in that order, too."""
    protocol = Growing()
    specs = [TaskSpec(one, priority, payload={"depth": 5}) for one, priority in
             [("x", 2), ("a", 0), ("y", 0.5)]]  # fmt: skip
    await Orchestrator(protocol, tmp_path, max_concurrency=1).run(specs)
    assert protocol.begun == ["a", "a1", "a2", "a11", "y", "x"]
    assert protocol.seen[0] == (["a", "y", "x"], [], "running")


@pytest.mark.parametrize("where", ["coroutine", "result", "checkpoint"])
async def test_what_a_protocol_raises_ends_the_work_and_can_be_gone_on_from(
    tmp_path: Path, where: str
) -> None:
    """It is raised as it is, without a report; the next run does what was not done."""

    class Broken(Growing):
        async def on_result(self, spec: TaskSpec, result: TaskResult) -> list[TaskSpec]:
            if where == "result" and spec.id == "a1":
                raise OSError("a1 is broken")
            return await super().on_result(spec, result)

        def checkpoint(self, queued: Any, running: Any, status: str) -> None:
            super().checkpoint(queued, running, status)
            if where == "checkpoint" and "a1" in self.seen[-1][1] and status == "running":
                raise OSError("a1 is broken")

    protocol = Broken(fails={"a1"} if where == "coroutine" else set())
    with pytest.raises(OSError, match="a1 is broken"):
        await Orchestrator(protocol, tmp_path, max_concurrency=1).run()
    queued, running, status = protocol.seen[-1]
    assert (running, status) == (["a1"], "interrupted")
    assert set(queued) <= {"a2", "b1"}
    assert not (tmp_path / "report.md").exists()

    again = Growing()
    await Orchestrator(again, tmp_path, max_concurrency=1).run()
    assert again.seen[0] == (queued, running, "running")
    done = Counter(spec.id for spec, _ in (*protocol.given, *again.given))
    assert done == Counter(ALL)
    ran_twice = ["a1"] if where == "coroutine" else []
    assert (Counter(protocol.begun) + Counter(again.begun)) - Counter(ALL) == Counter(ran_twice)


async def test_a_result_with_more_to_it_is_made_again_and_a_plain_one_is_not(
    tmp_path: Path,
) -> None:
    """A process may end between a coroutine's end and the protocol's answer to it."""

    @dataclass
    class Rich(TaskResult):
        score: int = 7

    class Protocol(Growing):
        broken = True

        async def _run(self, spec: TaskSpec) -> TaskResult:
            result = await super()._run(spec)
            return Rich(result.children) if spec.id == "rich" else result

        async def on_result(self, spec: TaskSpec, result: TaskResult) -> list[TaskSpec]:
            if self.broken:
                raise OSError("broken")
            return await super().on_result(spec, result)

    for name, ran in (("rich", 2), ("plain", 1)):
        protocol = Protocol({name: ["child"]}, [name])
        with pytest.raises(OSError, match="broken"):
            await Orchestrator(protocol, tmp_path / name, max_concurrency=1).run()
        protocol.broken = False
        await Orchestrator(protocol, tmp_path / name, max_concurrency=1).run()
        assert Counter(protocol.begun) == {name: ran, "child": 1}
        assert getattr(protocol.given[0][1], "score", None) == (7 if name == "rich" else None)
        assert [one.id for one in protocol.given[0][1].children] == ["child"]


async def test_a_spec_that_its_own_result_gives_back_is_done_once_more(tmp_path: Path) -> None:
    """As one that polls a job is, and so is each offer of another id."""

    class Polls(Growing):
        async def on_result(self, spec: TaskSpec, result: TaskResult) -> list[TaskSpec]:
            spec.payload["depth"] += 1
            again = [spec] if spec.id == "poll" and spec.payload["depth"] < 3 else []
            return [*again, *[TaskSpec("other", payload={"depth": 9})] * (spec.id == "poll")]

    protocol = Polls({}, ["poll"])
    await Orchestrator(protocol, tmp_path, max_concurrency=1).run()
    assert Counter(protocol.begun) == {"poll": 3, "other": 3}
    [run] = SqliteJournal(tmp_path / ".handrail" / "runs.db").runs()
    assert (run.run_id, run.status) == ("work-1", "succeeded")


AGAIN: dict[str, tuple[list[str], dict[str, list[str]], list[str]]] = {
    "a finished task": (["build"], {"build": ["fix"], "fix": ["build", "end"]},
                        ["build", "fix", "build", "end", "fix", "build", "end"]),
    "two parents": (["a", "b"], {"a": ["c"], "b": ["c"]}, ["a", "b", "c", "c"]),
    "twice in load()": (["a", "a"], {"a": ["b"]}, ["a", "a", "b", "b"]),
    "twice by one task": (["a"], {"a": ["b", "b"]}, ["a", "b", "b"]),
    "an id like a number": (["a", "a#2", "a"], {"a": ["a#2"]}, ["a", "a#2", "a", "a#2", "a#2"]),
}  # fmt: skip


class Bounded(Growing):
    """It has each task bring its children at most twice."""

    async def on_result(self, spec: TaskSpec, result: TaskResult) -> list[TaskSpec]:
        """The children, unless the id has ended twice before."""
        done = sum(one.id == spec.id for one, _ in self.given)
        children = await super().on_result(spec, result)
        return children if done < 2 else []


@pytest.mark.parametrize("crashes_at", [None, 1, 2])
@pytest.mark.parametrize("case", AGAIN)
async def test_every_spec_that_is_asked_for_is_done(
    case: str, crashes_at: int | None, tmp_path: Path
) -> None:
    """Whether its id was known or not, in order, and also after the work was interrupted."""
    roots, tree, expected = AGAIN[case]

    class Fails(Bounded):
        async def _run(self, spec: TaskSpec) -> TaskResult:
            self.fails = {spec.id} if len(self.begun) == crashes_at else set()
            return await super()._run(spec)

    protocol = Fails(tree, roots)
    begun, given = protocol.begun, protocol.given
    if crashes_at is not None:
        with pytest.raises(OSError, match="is broken"):
            await Orchestrator(protocol, tmp_path, max_concurrency=1).run()
        begun.pop()
    await Orchestrator(Bounded(tree, roots, begun=begun, given=given), tmp_path,
                       max_concurrency=1).run()  # fmt: skip
    assert begun == expected
    assert [spec.id for spec, _ in given] == expected


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("case", [*AGAIN, "by urgency"])
async def test_tasks_are_done_in_the_order_in_which_spdl_does_them(
    case: str, anyio_backend: str, tmp_path: Path
) -> None:
    """The same protocol gets the same specs and the same results in the same order."""
    core: Any = pytest.importorskip("spdl.autoresearch.core")
    roots, tree, _ = AGAIN.get(case, (["a", "b", "c"], {"a": ["d", "e"], "b": ["f", "a"]}, []))

    class Same(Bounded):
        """Specs and results of either library, with priorities."""

        def load(self) -> list[Any]:
            return [core.TaskSpec(one, -ord(one[-1]), payload={"depth": 0}) for one in self.roots]

        async def _run(self, spec: Any) -> Any:
            made = (await super()._run(spec)).children
            return core.TaskResult([core.TaskSpec(one.id, ord(one.id[0]) % 3, payload=one.payload)
                                    for one in made])  # fmt: skip

    def ours(workflow: Any, max_concurrency: int) -> Any:
        return Orchestrator(workflow, tmp_path, max_concurrency=max_concurrency)

    seen: list[Any] = []
    for orchestrator in (core.Orchestrator, ours):
        protocol = Same(tree, roots)
        await orchestrator(workflow=protocol, max_concurrency=1).run()
        seen.append((protocol.begun, protocol.given, protocol.seen[0], protocol.seen[-1]))
    assert seen[0][:2] == seen[1][:2]
    assert seen[0][3] == seen[1][3] == ([], [], "stopped")


async def test_an_object_of_another_library_fits(tmp_path: Path) -> None:
    """Specs need no more than an id, and methods may be plain functions."""

    class Spec:
        def __init__(self, name: str) -> None:
            self.id = name

    class Plain:
        seen: list[Any] = []  # noqa: RUF012

        def load(self) -> list[Any]:
            return [Spec("one")]

        def checkpoint(self, queued: Any, running: Any, status: str) -> None:
            self.seen.extend(queued)

        async def make_coro(self, spec: Any) -> None:
            self.seen.append(spec)

        def on_result(self, spec: Any, result: Any) -> Any:
            self.seen.append(result)

        def summarize(self, workdir: Path) -> str:
            raise OSError(workdir)

    await Orchestrator(Plain(), tmp_path, max_concurrency=1).run()
    assert [type(one) for one in Plain.seen] == [Spec, Spec, type(None)]
    assert not (tmp_path / "report.md").exists()


def test_what_is_no_protocol_is_refused(tmp_path: Path) -> None:
    """With the methods it lacks; and a window of none."""
    with pytest.raises(WrongUse, match=r"it has no load, .*, on_result, summarize"):
        Orchestrator(object(), tmp_path, max_concurrency=1)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="at least 1, got 0"):
        Orchestrator(Growing(), tmp_path, max_concurrency=0)


async def test_a_second_orchestrator_is_refused_and_keeps_its_hands_off(tmp_path: Path) -> None:
    """Its protocol is not asked to keep anything."""
    gate = anyio.Event()

    class Held(Growing):
        async def _run(self, spec: TaskSpec) -> TaskResult:
            await gate.wait()
            return await super()._run(spec)

    first, second = Held(), Growing()
    async with anyio.create_task_group() as group:
        group.start_soon(Orchestrator(first, tmp_path, max_concurrency=1).run)
        while len(first.seen) < 2:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(RunLocked):
            await Orchestrator(second, tmp_path, max_concurrency=1).run()
        with pytest.raises(InsideEventLoop):
            Orchestrator(second, tmp_path, max_concurrency=1).run_sync()
        gate.set()
    assert second.seen == []
    assert first.seen[-1] == ([], [], "stopped")
    await Orchestrator(second, tmp_path, max_concurrency=1).run()
    assert Counter(second.begun) == Counter(ALL), "work that is done begins from the start"


async def test_whoever_cancels_the_caller_interrupts_the_work(tmp_path: Path) -> None:
    """What was at work is kept, and the cancellation goes on to the caller."""

    class Sleeps(Growing):
        async def _run(self, spec: TaskSpec) -> TaskResult:
            if spec.id == "a1":
                scope.cancel()
                await anyio.sleep_forever()
            return await super()._run(spec)

    protocol = Sleeps()
    with anyio.CancelScope() as scope:
        await Orchestrator(protocol, tmp_path, max_concurrency=1).run()
    assert scope.cancelled_caught
    assert protocol.seen[-1][1:] == (["a1"], "interrupted")
    await Orchestrator(again := Growing(), tmp_path, max_concurrency=1).run()
    assert Counter(protocol.begun) + Counter(again.begun) == Counter(ALL)


async def test_a_task_is_added_while_the_work_goes_on_and_while_it_does_not(
    tmp_path: Path, cli: Cli
) -> None:
    """With its payload, by the command, which does not have to find the protocol."""
    words = ["work", "work-1", "--dir", str(tmp_path / ".handrail"), "--add"]

    class Adds(Growing):
        async def on_result(self, spec: TaskSpec, result: TaskResult) -> list[TaskSpec]:
            if spec.id == "a":
                added = await anyio.to_thread.run_sync(cli, *words, 'new={"depth": 4}')
                assert added.code == 0, added
            return await super().on_result(spec, result)

    protocol = Adds(fails={"new"})
    with pytest.raises(OSError, match="new is broken"):
        await Orchestrator(protocol, tmp_path, max_concurrency=1).run()
    more = [*words, 'more={"depth": 7}', "--priority", "more=-1"]
    assert (await anyio.to_thread.run_sync(cli, *more)).code == 0
    await Orchestrator(again := Growing(), tmp_path, max_concurrency=1).run()
    assert again.begun[:2] == ["more", "new"]
    assert {spec.id: spec.payload["depth"] for spec, _ in again.given}["more"] == 7
    assert Counter([*protocol.begun, *again.begun]) == Counter([*ALL, "new", "new", "more"])


FLOW = '''\
import asyncio, json, os, sys
from pathlib import Path

from handrail.work import Orchestrator, TaskResult, TaskSpec


class Tree:
    """Keeps its own state, as protocols do."""

    def __init__(self, workdir):
        self.workdir = Path(workdir)

    def load(self):
        state = self.workdir / "state.json"
        if not state.exists():
            return [TaskSpec("t", payload={"depth": 3})]
        kept = json.loads(state.read_text())
        return [TaskSpec.from_dict(one) for one in kept["queued"] + kept["running"]]

    def checkpoint(self, queued, running, status):
        kept = {"queued": queued, "running": running}
        data = {name: [one.to_dict() for one in specs] for name, specs in kept.items()}
        made = self.workdir / f"state.{os.getpid()}"
        made.write_text(json.dumps({**data, "status": status}))
        made.replace(self.workdir / "state.json")

    async def make_coro(self, spec):
        with open(self.workdir / "begun", "a") as stream:
            stream.write(spec.id + "\\n")
        await asyncio.sleep(0.03)
        below = range(3) if spec.payload["depth"] else ()
        deeper = {"depth": spec.payload["depth"] - 1}
        return TaskResult([TaskSpec(f"{spec.id}.{n}", -n, payload=deeper) for n in below])

    async def on_result(self, spec, result):
        with open(self.workdir / "ended", "a") as stream:
            stream.write(spec.id + "\\n")
        return result.children

    def summarize(self, workdir):
        ended = Path(workdir) / "ended"
        return f"{len(ended.read_text().split()) if ended.exists() else 0} ended\\n"


if __name__ == "__main__":
    Path("w").mkdir(exist_ok=True)
    Orchestrator(Tree("w"), "w", max_concurrency=2).run_sync()
'''
MORE = """


class Raises(Tree):
    def summarize(self, workdir):
        raise OSError(workdir)


SIZE, SILENT, THERE, raises = 3, lambda workdir: 3, Tree("w"), Raises


def made():
    return THERE


def factory(argv, workdir):
    assert argv == []
    return Tree(workdir)


class Spec:
    def __init__(self, argv, workdir):
        pass

    def build_workflow(self, workdir):
        return Tree(workdir)
"""
SIZE = 1 + 3 + 9 + 27


def lines(file: str) -> list[str]:
    """What is in a file so far."""
    return Path(file).read_text().split() if Path(file).exists() else []


def test_work_that_is_interrupted_and_killed_again_and_again_comes_to_its_end(
    folder: Path, cli: Cli
) -> None:
    """SIGINT ends with 130, SIGTERM with 143; nothing is done twice but what was at work, and there
    is a report, and a summary at any time.
    """
    (folder / "flow.py").write_text(FLOW)
    assert cli("work", "summary", "w", "flow.py:Tree").out == "0 ended\n"
    outcome = cli("work", "summary", "w")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no Orchestrator has worked there" in outcome.err
    at_work = 0
    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        before = len(lines("w/begun"))
        with subprocess.Popen([sys.executable, "flow.py"], stderr=subprocess.PIPE) as child:
            until(lambda: len(lines("w/begun")) >= before + 5)  # noqa: B023
            child.send_signal(number)
            assert child.wait(30) == (-9 if number == signal.SIGKILL else 128 + number)
        at_work += 2
        state = json.loads(Path("w/state.json").read_text())
        assert state["status"] == ("running" if number == signal.SIGKILL else "interrupted")
        assert not Path("w/report.md").exists()
        assert cli("work", "summary", "w").out == f"{len(lines('w/ended'))} ended\n"
        assert cli("runs", "--dir", "w/.handrail", "--json").data[0]["run_id"] == "work-1"
    done = subprocess.run([sys.executable, "flow.py"], check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert json.loads(Path("w/state.json").read_text()) == {
        "queued": [], "running": [], "status": "stopped"
    }  # fmt: skip
    assert len(set(lines("w/ended"))) == SIZE
    assert len(lines("w/begun")) <= SIZE + at_work
    assert Path("w/report.md").read_text() == f"{len(lines('w/ended'))} ended\n"
    assert cli("work", "work-1", "--dir", "w/.handrail").out == f"work: {SIZE} done\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("flow.py:nobody", "was not found"),
        ("flow.py:SIZE", "cannot be made of the folder alone"),
        ("flow.py:json", "cannot be made of the folder alone"),
        ("flow.py:SILENT", "has no summarize()"),
        ("flow.py:raises", "raised OSError: w"),
        ("flow.py:THERE", None),
        ("flow.py:made", None),
        ("flow.py:factory", None),
        ("flow.py:Spec", None),
    ],
)
def test_a_summary_is_that_of_the_protocol_that_is_named(
    folder: Path, cli: Cli, target: str, said: str | None
) -> None:
    """A protocol, a class or a function that makes one; of what is none it is said why."""
    (folder / "flow.py").write_text(FLOW.partition("\n\nif __name__")[0] + MORE)
    outcome = cli("work", "summary", "w", target)
    assert (outcome.code, outcome.out) == ((2, "") if said else (0, "0 ended\n"))
    assert (said or "") in outcome.err


def test_a_summary_without_its_protocol_is_what_the_journal_says(folder: Path, cli: Cli) -> None:
    """The code may have moved; how the work stands can still be seen."""

    class Local(Growing):
        """It cannot be found by its name."""

    protocol = Local(fails={"b"})
    with suppress(OSError):
        Orchestrator(protocol, folder / "w", max_concurrency=1).run_sync()
    outcome = cli("work", "summary", "w")
    assert outcome.code == 0
    assert outcome.out == "work: 2 left, 1 done, 1 failed\n  left     a1, a2\n"
