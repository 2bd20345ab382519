"""The commands reach runs of a cluster as they reach those of a journal on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handrail.temporal.dev import free_port, is_taken
from handrail.temporal.worker import TemporalWorker
from tests.cli.machines import until
from tests.temporal.flows import counts

pytestmark = pytest.mark.temporal
ROOT = Path(__file__).parents[2]
FLOWS = """\
from __future__ import annotations

from pathlib import Path

import anyio

from handrail import Steps, step, workflow


def add(one: int, other: int) -> int:
    return one + other


async def waits_for(file: Path) -> str:
    while not (file.exists() and (said := file.read_text())):
        await anyio.sleep(0.02)
    return said


@workflow
def asks(one: int = 1) -> Steps[str]:
    found = yield from step("sum").call(add, one, 1)
    said = yield from step("go?").ask(f"Is it {found}?", choices=["yes", "no"])
    news = yield from step("news").wait_for("news")
    return f"{said} {news}"


@workflow
def lasts(file: Path) -> Steps[str]:
    return (yield from step("wait").call(waits_for, file))
"""
Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with workflows."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "asking.py").write_text(FLOWS, "utf-8")
    return folder


def begin(home: Path, *words: str) -> subprocess.Popen[str]:
    """The command as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "handrail", *words],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
        text=True,
    )


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[str]:
    """Its address; the process that serves it the workflows ends with the tests."""
    port, page = free_port(), free_port()
    words = ("--port", str(port), "--ui-port", str(page))
    with begin(home, "temporal", "dev", "asking.py", *words) as process:
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        assert f"127.0.0.1:{port}" in said[0], said
        assert "asks, lasts" in said[1], said
        yield f"127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert (home / ".handrail" / "temporal.db").exists()


@pytest.fixture
def ask(home: Path, cluster: str) -> Ask:
    """Give a command to the cluster."""

    def asked(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "handrail", *words],
            cwd=home,
            env={**os.environ, "HANDRAIL_TEMPORAL": cluster, "NO_COLOR": "1", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return asked


def test_a_run_is_begun_asked_answered_and_read(ask: Ask, home: Path) -> None:
    """With the words that a journal on disk is asked with, by processes that know only the name."""
    begun = ask("run", "asking.py:asks", "--run-id", "talk", code=3)
    assert "handrail answer talk" in begun.stderr
    assert "an answer: Is it 2?" in ask("runs").stdout
    assert "Is it 2?" in ask("show", "talk").stdout
    ask("answer", "talk", "go?", "perhaps", code=2)
    ask("answer", "talk", "go?", "yes")
    ask("signal", "talk", "news", '"good"')
    assert "yes good" in ask("tail", "talk", "--json").stdout
    (line,) = json.loads(ask("runs", "--json", "--status", "succeeded").stdout)
    assert line["run_id"] == "talk"
    assert "go?" in ask("report", "talk").stdout
    ask("export", "talk", "-o", "talk.jsonl")
    assert len((home / "talk.jsonl").read_text("utf-8").splitlines()) > 8
    assert ask("import", "talk.jsonl", "--run-id", "copy").stdout.strip() == "copy"
    assert ask("diff", "talk", "copy").returncode == 0
    assert "cluster" in ask("doctor").stdout


def test_a_client_that_is_killed_leaves_its_run(ask: Ask, home: Path, cluster: str) -> None:
    """The run goes on, and another process has its end; so does Ctrl-C."""
    for number, how in enumerate((signal.SIGKILL, signal.SIGINT)):
        run_id, file = f"lasts-{number}", home / f"file-{number}"
        words = ("--run-id", run_id, "--input", f"file={file}", "--temporal", cluster)
        with begin(home, "run", "asking.py:lasts", *words) as client:
            assert client.stdout is not None
            while "wait" not in client.stdout.readline():
                pass
            client.send_signal(how)
            assert client.wait(20) in {-signal.SIGKILL, 130}
            if how is signal.SIGINT:
                assert "continues on the cluster" in client.stdout.read()
        file.write_text("done", "utf-8")
        assert '"done"' in ask("tail", run_id, "--json").stdout


def test_a_detached_run_is_the_clusters(ask: Ask) -> None:
    """The command prints the run's id once the cluster has the run, and ends; a resume, too."""
    assert ask("run", "asking.py:asks", "--run-id", "apart", "--detach").stdout == "apart\n"
    until(lambda: "Is it 2?" in ask("show", "apart").stdout, "its question")
    begun = json.loads(ask("resume", "apart", "--detach", "--json", "--rerun", "sum").stdout)
    assert begun["run_id"] == "apart"
    assert begun["cluster"]
    ask("cancel", "apart")


def test_a_run_is_cancelled_and_planned(ask: Ask, home: Path) -> None:
    """The plan of a cancelled run says what would run again."""
    ask("run", "asking.py:asks", "--run-id", "over", "--quiet", code=3)
    ask("cancel", "over", "--reason", "enough")
    assert "cancelled" in ask("show", "over").stdout
    assert "go?" in ask("plan", "over", "--target", "asking.py:asks").stdout
    ask("resume", "over", "--target", "asking.py:asks", code=3)
    del home


def test_what_cannot_be_done_is_refused(home: Path, cluster: str) -> None:
    """What only workers can be given, and where nothing is: each by one line, or a few."""
    on_it = ("--temporal", cluster)
    refused = {
        ("run", "asking.py:asks", "--backend", "claude", *on_it): "the cluster's workers run the",
        ("run", "asking.py:asks", "--notify", "true", *on_it): "the cluster runs this one",
        ("runs", "--temporal", "127.0.0.1:1"): "cannot be reached",
        ("runs", "--temporal", f"{cluster}/nowhere"): "nowhere",
        ("temporal", "dev", "--port", cluster.rpartition(":")[2]): "in use",
        ("temporal", "dev", "none.py"): "there is no such file",
    }
    begun = {words: begin(home, *words) for words in refused}
    for words, process in begun.items():
        told, _ = process.communicate(timeout=60)
        assert process.returncode == 2 if words[0] == "run" else process.returncode, told
        assert refused[words] in told, told
        assert len(told.splitlines()) <= 3, told


def test_a_worker_may_start_before_its_cluster(home: Path) -> None:
    """It serves once the cluster is there, and ends quietly."""
    port = free_port()
    with (
        begin(home, "worker", "asking.py", "--temporal", f"127.0.0.1:{port}") as worker,
        begin(home, "temporal", "dev", "--port", str(port), "--ui-port", str(free_port())) as dev,
    ):
        assert worker.stdout is not None
        told = [worker.stdout.readline()]
        if "waits for the cluster" in told[0]:
            told.append(worker.stdout.readline())
        assert "serves task queue" in told[-1], told
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=30)
        assert len(rest.splitlines()) == 1, rest
        dev.send_signal(signal.SIGINT)
    assert worker.returncode == 0


def test_a_cluster_ends_with_its_command_that_is_killed(home: Path) -> None:
    """So that nothing is left behind that has its ports."""
    ports = free_port(), free_port()
    words = ("--port", str(ports[0]), "--ui-port", str(ports[1]))
    with begin(home, "temporal", "dev", *words) as process:
        assert process.stdout is not None
        assert str(ports[0]) in process.stdout.readline()
        process.kill()
    until(lambda: not is_taken(ports[0]), "its end")


async def test_what_a_worker_serves_is_said() -> None:
    """In one line, which its log begins with."""
    assert str(TemporalWorker("h:1", runs=False)) == "steps only"
    assert str(TemporalWorker("h:1", steps=False)) == "workflows only: whatever it can import"
    told = str(TemporalWorker("h:1", [counts]))
    assert told == "steps, and workflows: counts, whatever it can import"
