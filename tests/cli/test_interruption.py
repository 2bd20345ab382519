"""Signals end a run in order, and a second one at once."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail.system.run import kill_marked
from tests.cli.conftest import Cli, wait_for

SLOW = """\
from handrail import step, workflow


def note(text):
    with open("notes", "a") as stream:
        stream.write(text + "\\n")


def undo(ctx):
    note(f"undone {ctx.output('/before')}")


@workflow
def slow():
    yield from step("before").call(str, 1).with_rollback(undo)
    try:
        yield from step("wait").command(
            "[ -e go ] || { sleep 600 & echo $! >child; echo $$ >leader; sleep 600; }"
        )
    finally:
        yield from step("after").call(note, "cleaned up")


@workflow
def stubborn():
    yield from step("wait").command("trap '' TERM; echo $$ >leader; sleep 600 & wait; sleep 600")


@workflow
def blocked():
    yield from step("ready").call(str)
    with open("leader", "w") as stream:
        stream.write("blocked\\n")
    while True:
        pass
"""


@contextmanager
def running(target: str, *words: str, command: str = "run") -> Generator[subprocess.Popen[str]]:
    """The command, once its workflow has come to the step that waits."""
    with subprocess.Popen(
        [sys.executable, "-m", "handrail.cli", command, target, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=hear_hangups,  # noqa: PLW1509  # no threads are started here
    ) as child:
        try:
            wait_for(Path("leader"), child)
            yield child
        finally:
            child.kill()


def hear_hangups() -> None:
    """Undo what `nohup` did, if these tests run below it: the command leaves it ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def is_alive(file: str) -> bool:
    """True if the process whose id is in the file runs; one that nobody reaped does not."""
    command = ["ps", "-o", "stat=", "-p", Path(file).read_text().strip()]
    state = subprocess.run(command, capture_output=True, encoding="utf-8", check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.fixture(autouse=True)
def _flow(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW, "utf-8")


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_run_in_order(signum: signal.Signals, code: int, cli: Cli) -> None:
    """The children are gone, nothing was undone, and how to continue is told; the result is on
    stdout alone. A resume does nothing again but what was at work.
    """
    with running("slow.py:slow", "--run-id", "s", "--json") as child:
        child.send_signal(signum)
        out, err = child.communicate(timeout=30)

    assert child.returncode == code
    assert json.loads(out)["status"] == "suspended"
    assert not is_alive("leader")
    assert not is_alive("child")
    assert not Path("notes").exists()
    assert "slow suspended after" in err
    assert "interrupted: 1 succeeded (before)" in err
    assert "nothing was rolled back; to continue: handrail resume s\n" in err
    assert "Traceback" not in err

    Path("go").touch()
    outcome = cli("resume", "s")
    assert outcome.code == 0
    assert "1 step taken from the record" in outcome.err
    assert Path("notes").read_text() == "cleaned up\n"


def test_a_resumed_run_is_interrupted_as_well(cli: Cli) -> None:
    """A signal ends a resumed drive in order too, and the run can be resumed once more."""
    with running("slow.py:slow", "--run-id", "s") as child:
        child.kill()
        child.wait()
    kill_marked("s")
    Path("leader").unlink()
    with running("s", command="resume") as child:
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)

    assert child.returncode == 130
    assert not is_alive("leader")
    assert "interrupted: 1 succeeded (before)" in err
    assert cli("runs", "--json").data[0]["status"] == "suspended"


def test_a_second_signal_kills_and_leaves_at_once() -> None:
    """A child that ignores SIGTERM is killed, and the command is gone before its grace is over."""
    with running("slow.py:stubborn") as child:
        again_and_again(child, signal.SIGINT)
        _, err = child.communicate(timeout=30)

    assert child.returncode == 130
    assert "left at once" in err
    assert "to continue: handrail resume slow-" not in err
    assert "to continue: handrail resume stubborn-" in err
    assert "interrupted: " not in err
    assert not is_alive("leader")


def test_a_second_signal_works_though_the_loop_is_blocked() -> None:
    """A workflow's body that never yields again can be left."""
    with running("slow.py:blocked") as child:
        again_and_again(child, signal.SIGTERM)
        _, err = child.communicate(timeout=30)

    assert child.returncode == 143
    assert "processes killed: 0" in err


def again_and_again(child: subprocess.Popen[str], signum: signal.Signals) -> None:
    """Send a signal until the command has ended, as an impatient person does."""
    while child.poll() is None:
        child.send_signal(signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.06)


ONE_MOMENT = """
import signal
from handrail.cli.driving import Interruption

with Interruption(now_s=lambda: 100.0) as interruption:
    for _ in range(3):
        signal.raise_signal(signal.SIGTERM)
print(repr(interruption.exit))
"""


def test_signals_of_one_moment_are_one() -> None:
    """A launcher that sends its signal twice does not make a run leave without its rollbacks."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_MOMENT], capture_output=True, encoding="utf-8", check=True
    )

    assert done.stdout == "<Exit.TERMINATED: 143>\n"
