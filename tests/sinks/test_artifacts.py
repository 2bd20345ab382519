"""ArtifactsSink: files for people, written as things happen."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import (
    Agent,
    Executor,
    FakeBackend,
    MemorySink,
    StepFailed,
    Steps,
    step,
    workflow,
)
from handrail.errors import WrongUse
from handrail.model import events as ev
from handrail.model.folders import run_folder, step_folder
from handrail.model.results import StepResult
from handrail.sinks import background
from handrail.sinks.artifacts import ArtifactsSink
from handrail.sinks.background import BackgroundWriter, overwrite
from handrail.testing.contracts import SinkContract
from tests.sinks.story import Story


class TestArtifactsSink(SinkContract):
    @pytest.fixture
    def make_sink(self, tmp_path: Path) -> Any:
        """A new sink on the same folder each time."""
        return lambda: ArtifactsSink(tmp_path / "runs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the artifacts are to be."""
    return tmp_path / "runs"


@pytest.fixture
def story(folder: Path) -> Story:
    """A run whose events become artifacts."""
    return Story(ArtifactsSink(folder).emit, run_id="r1")


def files_below(folder: Path) -> dict[str, str]:
    """The text of every file, by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def planner() -> Agent[dict[str, int]]:
    """An agent that answers at the second time."""
    backend = FakeBackend(["no", '{"n": 1}'])
    return Agent("planner", "Plan {{ task }}.", output=dict[str, int], backend=backend)


@workflow
def ship(task: str) -> Steps[str]:
    """Something of each kind."""
    yield from step("say").command("printf hello; printf 'oh dear' >&2")
    yield from step("plan").agent(planner(), {"task": task})
    yield from step("each").for_each([2, 3], lambda n: step("square").call(pow, n, 2))
    try:
        yield from step("bad").call(int, "x")
    except StepFailed:
        return "shipped"
    return ""


@pytest.mark.extra("jinja2")
def test_a_run_leaves_a_folder_of_files(folder: Path) -> None:
    """Each step has a folder with what it was given, printed, and gave; the run has its facts."""
    result = Executor(sinks=[ArtifactsSink(folder)]).options(run_id="r1").run_sync(ship, "it")
    assert result.success
    found = files_below(folder / "ship-r1")
    assert sorted(found) == [
        "bad/error.txt",
        "each/0/square/output.json",
        "each/1/square/output.json",
        "each/output.json",
        "events.jsonl",
        "plan/answer-2.md",
        "plan/answer.md",
        "plan/output.json",
        "plan/prompt-2.md",
        "plan/prompt.md",
        "run.json",
        "say/output.json",
        "say/stderr",
        "say/stdout",
    ]
    assert (found["say/stdout"], found["say/stderr"]) == ("hello", "oh dear")
    assert found["plan/prompt.md"].startswith("Plan it.")
    assert (found["plan/answer.md"], found["plan/answer-2.md"]) == ("no", '{"n": 1}')
    assert json.loads(found["plan/output.json"])["output"] == {"n": 1}
    assert json.loads(found["each/output.json"]) == [4, 9]
    assert "builtins.ValueError: invalid literal" in found["bad/error.txt"]
    assert "Traceback" in found["bad/error.txt"]
    facts = json.loads(found["run.json"])
    assert {name: facts[name] for name in ("workflow", "run_id", "status", "inputs", "value")} == {
        "workflow": "ship",
        "run_id": "r1",
        "status": "succeeded",
        "inputs": {"task": "it"},
        "value": "shipped",
    }


def test_every_event_is_a_line(folder: Path) -> None:
    """The events of the run are there in order, and the progress that has no file of its own."""
    memory = MemorySink()
    Executor(sinks=[memory, ArtifactsSink(folder)]).options(run_id="r1").run_sync(ship, "it")
    lines = (folder / "ship-r1" / "events.jsonl").read_text("utf-8").splitlines()
    apart = {"StepOutput", "AgentMessage", "AgentReasoning", "AgentTranscript"}
    kinds = [type(event).__name__ for event in memory.events]
    assert [json.loads(line)["type"] for line in lines] == [k for k in kinds if k not in apart]


def test_what_an_agents_program_said_is_there_as_it_was(folder: Path, story: Story) -> None:
    """The transcript has its lines, sent and received; thoughts and answers are texts."""
    story.begin()
    story.start("code", "agent")
    story.tell(ev.AgentTurnStarted("code", 1, "Do it.\n"))
    story.tell(ev.AgentTranscript("code", '{"type":"hello"}\n'))
    story.tell(ev.AgentTranscript("code", '{"id":1}', "sent"))
    story.tell(ev.AgentReasoning("code", "Hm, "))
    story.tell(ev.AgentReasoning("code", "well."))
    story.tell(ev.AgentMessage("code", "I look "))
    story.tell(ev.AgentMessage("code", "first."))
    story.tell(ev.AgentToolStarted("code", "t", "Read", {"path": "a", "why": "x" * 9_000}))
    story.tell(ev.AgentToolCompleted("code", "t", "Read", output="y" * 9_000))
    story.tell(ev.AgentMessage("code", "Done."))
    story.tell(ev.StepOutput("code", "stderr", "warning\n"))
    story.tell(ev.AgentFinished("code", "completed", files_changed=("a.py", "b.py")))
    story.finish()
    found = files_below(folder / "ship-r1" / "code")
    began, ended, done = map(json.loads, found.pop("activity.jsonl").splitlines())
    assert (began["name"], began["input"]["path"]) == ("Read", "a")
    assert len(began["input"]["why"]) < 3_000 > len(ended["output"])
    assert done["files_changed"] == ["a.py", "b.py"]
    assert found == {
        "answer.md": "I look first.\n\nDone.",
        "prompt.md": "Do it.\n",
        "reasoning.md": "Hm, well.",
        "stderr": "warning\n",
        "transcript.jsonl": '{"type":"hello"}\n{"id":1}\n',
    }


def test_a_resumed_run_adds_to_its_files(folder: Path) -> None:
    """A new process writes the next prompt and more lines; nothing of before is lost."""
    for number in (1, 2):
        sink = ArtifactsSink(folder)
        story = Story(sink.emit, run_id="r1")
        story.begin() if number == 1 else story.tell(ev.RunResumed(workflow_name="ship"))
        story.tell(ev.AgentTurnStarted("code", 1, f"prompt {number}"))
        story.tell(ev.AgentMessage("code", f"answer {number}"))
        story.tell(ev.StepOutput("code", "stdout", f"{number}\n"))
        story.finish() if number == 2 else story.tell(ev.RunSuspended(signals=("go",)))
        facts = json.loads((folder / "ship-r1" / "run.json").read_text("utf-8"))
        assert (facts["status"], facts["inputs"]) == (
            "suspended" if number == 1 else "succeeded", {"task": "x"},
        )  # fmt: skip
        assert facts.get("waiting") == ([{"signal": "go"}] if number == 1 else None)
    found = files_below(folder / "ship-r1")
    assert found["code/stdout"] == "1\n2\n"
    assert (found["code/prompt.md"], found["code/prompt-2.md"]) == ("prompt 1\n", "prompt 2\n")
    assert (found["code/answer.md"], found["code/answer-2.md"]) == ("answer 1", "answer 2")
    assert len(found["events.jsonl"].splitlines()) == 6


KILLED = """
import os, signal, sys
from handrail.model import events as ev
from handrail.sinks.artifacts import ArtifactsSink
sink = ArtifactsSink(sys.argv[1])
emit = lambda event: sink.emit(ev.stamp(event, "r1", 1, 1.0))
emit(ev.WorkflowStarted("ship", {"task": "x"}))
emit(ev.AgentTurnStarted("code", 1, "Do it."))
emit(ev.AgentToolStarted("code", "t", "Bash", {"command": "sleep 999"}))
emit(ev.AgentTranscript("code", '{"tool":"Bash"}'))
file = os.path.join(sys.argv[1], "ship-r1", "code", "transcript.jsonl")
while not (os.path.exists(file) and os.path.getsize(file)):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_its_agent_was_doing(folder: Path) -> None:
    """What was shown a moment ago is in the files, though nobody closed them."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    found = files_below(folder / "ship-r1")
    assert found["code/prompt.md"] == "Do it.\n"
    assert found["code/transcript.jsonl"] == '{"tool":"Bash"}\n'
    assert json.loads(found["run.json"])["status"] == "running"
    assert '"command":"sleep 999"' in found["events.jsonl"]


def test_values_that_json_cannot_say_are_written_as_text(folder: Path, story: Story) -> None:
    """Any value has an output.json."""
    story.begin()
    for name, value in (("a", {(1, 2): 3}), ("b", object()), ("c", 2**99), ("d", "\ud800")):
        story.run(name, output=value)
    story.finish()
    found = files_below(folder / "ship-r1")
    assert json.loads(found["a/output.json"]) == {"[1, 2]": 3}
    assert json.loads(found["b/output.json"]).startswith("<object object")
    assert json.loads(found["c/output.json"]) == 2**99
    assert json.loads(found["d/output.json"]) == "\\ud800"


def test_an_output_made_of_others_is_told_once(folder: Path, story: Story) -> None:
    """In the events, what follows from the steps inside is left out; in output.json it is whole."""
    story.begin()
    result = StepResult[Any]("all", "all", "parallel", "succeeded", ("once only",))
    story.tell(ev.StepCompleted("all", result, composed="outputs"))
    member = StepResult[Any]("0", "each/0", "member", "succeeded", "of its step")
    story.tell(ev.MemberCompleted("each/0", 0, member, composed="child"))
    story.finish()
    found = files_below(folder / "ship-r1")
    assert "once only" not in found["events.jsonl"]
    assert json.loads(found["all/output.json"]) == ["once only"]
    assert "each/0/output.json" not in found


# -- where things are ------------------------------------------------------------------------------


def test_folders_follow_the_path() -> None:
    """A path is nested folders; what a file system may not take is percent-encoded or cut."""
    assert run_folder("ship", "ship-7f3a") == "ship-ship-7f3a"
    assert run_folder("", "r 1") == "r%201"
    assert step_folder("review/3/lint") == "review/3/lint"
    assert step_folder("merge?/ä") == "merge%3F/%C3%A4"
    long = step_folder("a" * 200)
    assert len(long) == 80 + 1 + 12
    deep = step_folder("/".join(["b" * 100] * 40))
    assert len(deep) < 640
    assert deep != step_folder("/".join([*["b" * 100] * 39, "c"]))


@pytest.mark.parametrize("name", ["stdout", "run.json", "prompt.md", "prompt-12.md", "error.txt"])
def test_a_step_with_the_name_of_a_file_has_another_folder(name: str, folder: Path) -> None:
    """A step may be called like a file that stands beside its folder."""

    @workflow
    def odd() -> Steps[None]:
        yield from step(name).command("echo 1")
        yield from step("a").parallel(step(name).command("echo 2"))

    result = Executor(sinks=[ArtifactsSink(folder)]).run_sync(odd)
    assert result.success
    found = files_below(folder)
    encoded = f"%{ord(name[0]):02X}{name[1:]}"
    texts = {path.split("/", 1)[1]: text for path, text in found.items()}
    assert texts[f"{encoded}/stdout"] == "1\n"
    assert texts[f"a/{encoded}/stdout"] == "2\n"


parts = st.text(min_size=1, max_size=120).map(lambda text: text.replace("/", "_"))


@given(st.lists(parts, min_size=1, max_size=8), st.lists(parts, min_size=1, max_size=8))
def test_different_steps_have_different_folders(one: list[str], other: list[str]) -> None:
    """No two paths share a folder, and none leads out of the run's."""
    first, second = step_folder("/".join(one)), step_folder("/".join(other))
    assert (first == second) == (one == other)
    assert first.isascii()
    assert not {"", ".", ".."} & set(first.split("/"))


# -- a disk that does not do its part --------------------------------------------------------------


@pytest.mark.extra("jinja2")
def test_a_disk_that_cannot_be_written_drops_the_sink(tmp_path: Path) -> None:
    """The run goes on, and the other sinks are told."""
    (tmp_path / "runs").write_text("a file, where a folder should be", "utf-8")
    memory = MemorySink()
    sinks = [ArtifactsSink(tmp_path / "runs"), memory]
    result = Executor(sinks=sinks).run_sync(ship, "it")
    assert result.success
    (dropped,) = memory.of(ev.SinkDropped)
    assert dropped.sink == "ArtifactsSink"
    assert "NotADirectoryError" in dropped.error or "FileExistsError" in dropped.error


def test_a_full_disk_drops_the_sink(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the middle is raised at a later event, once; a new run tries again."""
    sink = ArtifactsSink(folder)
    story = Story(sink.emit)
    story.begin()
    sink.close()

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            story.finish()
    again = Story(sink.emit, run_id="r2")
    again.begin()
    again.finish()
    assert json.loads((folder / "ship-r2" / "run.json").read_text("utf-8"))["status"] == "succeeded"


class SlowDisk:
    """Writes nothing until it is let go. Mutable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        write = os.write

        def held(descriptor: int, data: bytes) -> int:
            if threading.current_thread().name == "handrail artifacts":
                self.gate.wait(60)
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", held)


def test_a_slow_disk_holds_nobody_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded; what is left out is said where it is missing."""
    disk = SlowDisk(monkeypatch)
    writer = BackgroundWriter(most_bytes=1_000)
    file = folder / "stdout"
    for _ in range(100):
        writer.append(str(file), b"x" * 100)
    assert writer.finish(0.01) is False
    disk.gate.set()
    assert writer.finish(60) is True
    text = file.read_text("utf-8")
    assert len(text) < 3_000
    said = [line.split()[0] for line in text.splitlines() if "missing" in line]
    missing = [int(number.strip("[").replace(",", "")) for number in said]
    assert sum(missing) + text.count("x") == 10_000
    writer.append(str(file), b"more\n")
    assert writer.finish(60)
    assert file.read_text("utf-8").endswith("more\n")


def test_a_slow_disk_loses_no_whole_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only texts that are appended are left out: a prompt or an output is written, though late."""
    disk = SlowDisk(monkeypatch)
    writer = BackgroundWriter(most_bytes=1_000)
    log = str(folder / "stdout")
    for number in range(20):
        writer.append(log, b"x" * 100)
        file = str(folder / str(number))
        writer.do(lambda file=file: overwrite(file, b"y" * 100), 100)
    disk.gate.set()
    assert writer.finish(60)
    writer.append(log, b"more\n")
    assert writer.finish(60)
    assert [(folder / str(number)).read_bytes() for number in range(20)] == [b"y" * 100] * 20
    assert Path(log).read_text("utf-8").endswith("more\n")


def test_the_thread_ends_when_it_is_idle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is left behind, and the next text starts another."""
    monkeypatch.setattr(background, "IDLE_S", 0.01)
    writer = BackgroundWriter()
    for number in (1, 2):
        writer.append(str(folder / "stdout"), b"x")
        assert writer.finish(60)
        thread = writer._thread
        if thread is not None:
            thread.join(60)
        assert (folder / "stdout").read_bytes() == b"x" * number


def test_a_folder_that_is_no_path_is_refused() -> None:
    """A wrong argument is told when the sink is made."""
    with pytest.raises(WrongUse, match="takes the path of a folder, got 7"):
        ArtifactsSink(7)  # type: ignore[arg-type]  # that is the point


def test_the_folder_of_a_run_grows_no_further_than_it_may(tmp_path: Path) -> None:
    """What was written longest ago goes first, and how the run stands is kept."""
    sink = ArtifactsSink(tmp_path / "runs", max_mb=0.2)
    story = Story(sink.emit, run_id="r1")
    story.begin()
    for number in range(60):
        path = f"s{number}"
        story.start(path, "command")
        story.tell(ev.StepOutput(path, "stdout", "x" * 10_000))
        sink.close()
    story.finish()
    sink.close()
    (run,) = (tmp_path / "runs").iterdir()
    files = [file for file in run.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 230_000
    names = {file.parent.name for file in files}
    assert "s0" not in names
    assert {"s58", "s59"} <= names
    assert json.loads((run / "run.json").read_text())["status"] == "succeeded"
    with pytest.raises(WrongUse, match="max_mb"):
        ArtifactsSink(tmp_path, max_mb=0)


def test_events_with_large_outputs_are_cut_within_the_bound(tmp_path: Path) -> None:
    """Their last lines stay, behind one that says so, in every drive."""
    for drive in range(3):
        sink = ArtifactsSink(tmp_path / "runs", max_mb=1)
        story = Story(sink.emit, run_id="r1")
        story.begin() if not drive else story.tell(ev.RunResumed(workflow_name="ship"))
        for number in range(8):
            story.run(f"s{number}", output="x" * 400_000)
            story.run(f"t{number}", output=number)
        story.tell(ev.RunSuspended(signals=("go",)))
        sink.close()
        found = files_below(tmp_path / "runs" / "ship-r1")
        lines = [json.loads(line) for line in found["events.jsonl"].splitlines()]
        assert sum(map(len, found.values())) <= 1_000_000
        assert (lines[0]["type"], lines[-1]["type"]) == ("EventsRemoved", "RunSuspended")
        assert [line["path"] for line in lines[-4:-1]] == ["s7", "t7", "t7"]
        assert json.loads(found["run.json"])["status"] == "suspended"
