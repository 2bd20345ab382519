"""Commands run for real, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from handrail.errors import CommandNotFound
from handrail.system import ending
from handrail.system import run as run_module
from handrail.system.run import ProcessResult, kill_marked, run_process
from tests.leftovers import nothing_left

PYTHON = [sys.executable, "-c"]
IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 60; done"


@pytest.fixture
def marker() -> Iterator[str]:
    """A marker of its own; afterwards no process carries it, no child and no file is left."""
    marker = f"test-{uuid.uuid4().hex}/step"
    with nothing_left(marker):
        yield marker


class Until:
    """Collects output, and cancels a scope as soon as a word was printed."""

    def __init__(self, scope: anyio.CancelScope, word: str = "ready") -> None:
        self.scope = scope
        self.word = word
        self.text = ""

    def __call__(self, stream: str, text: str) -> None:
        """Take what was printed."""
        self.text += text
        if self.word in self.text:
            self.scope.cancel()


async def cancelled_when_ready(
    argv: list[str] | str, marker: str, *, grace_s: float = 2.0
) -> tuple[str, float]:
    """What a command that says ``ready`` printed until it was ended, and how long ending took."""
    started_s = time.monotonic()
    scope = anyio.CancelScope()
    until = Until(scope)
    with anyio.fail_after(20), scope:
        await run_process(argv, marker=marker, on_output=until, grace_s=grace_s)
    assert scope.cancelled_caught
    return until.text, time.monotonic() - started_s


# What a command is given, and what it gives back


@pytest.mark.parametrize(
    ("command", "expected"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", -9), ("kill -TERM $$", -15), ("nope", 127)],
)
async def test_the_exit_code_is_the_commands(command: str, expected: int, marker: str) -> None:
    """Exit codes pass unchanged, and a signal shows as its negative number."""
    assert (await run_process(command, marker=marker)).exit_code == expected


async def test_both_streams_come_back_as_they_were_printed(marker: str) -> None:
    """Output and error output are kept apart, and line ends are left alone."""
    result = await run_process(r"printf 'a\r\nb\n'; printf 'c\n' >&2", marker=marker)
    assert result == ProcessResult(0, "a\r\nb\n", "c\n", 0, 0, result.duration_ms)


async def test_words_do_not_pass_through_a_shell(marker: str) -> None:
    """A word that a shell would expand reaches the program as it is."""
    result = await run_process(["echo", "$HOME; *"], marker=marker)
    assert result.stdout == "$HOME; *\n"


async def test_variables_are_added_to_the_environment(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command sees the environment of its caller, its own variables, and its marker."""
    monkeypatch.setenv("INHERITED", "a")
    command = "echo $INHERITED $OWN $HANDRAIL_STEP $HANDRAIL_OUTER_STEPS"
    result = await run_process(command, marker=marker, env={"OWN": "b"})
    assert result.stdout == f"a b {marker}\n"


async def test_a_command_inside_a_step_carries_the_outer_marker_too(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What handrail starts while it is itself a step of a run can be found by that run."""
    monkeypatch.setenv("HANDRAIL_STEP", "outer/step")
    result = await run_process("echo $HANDRAIL_STEP $HANDRAIL_OUTER_STEPS", marker=marker)
    assert result.stdout == f"{marker} outer/step\n"


async def test_it_runs_in_the_working_directory(marker: str, tmp_path: Path) -> None:
    """A command starts in ``cwd``, given as a path."""
    (tmp_path / "here").touch()
    assert (await run_process(["ls"], marker=marker, cwd=tmp_path)).stdout == "here\n"


async def test_a_command_leads_a_session_of_its_own(marker: str) -> None:
    """A Ctrl-C at the terminal of its caller does not reach the command."""
    program = "import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())"
    assert (await run_process([*PYTHON, program], marker=marker)).stdout == "True\n"


async def test_without_stdin_there_is_nothing_to_read(marker: str) -> None:
    """A command that reads stdin meets its end at once, not the terminal."""
    assert (await run_process(["cat"], marker=marker)).stdout == ""


@pytest.mark.parametrize("stdin", ["é\r\n", b"\xc3\xa9\r\n"])
async def test_stdin_reaches_the_command(stdin: str | bytes, marker: str) -> None:
    """Text and bytes are read by the command as they are, followed by the end."""
    assert (await run_process(["cat"], marker=marker, stdin=stdin)).stdout == "é\r\n"


async def test_long_input_and_output_at_once_do_not_lock_up(marker: str) -> None:
    """A command that echoes more than a pipe holds gets and gives all of it."""
    text = "0123456789abcdef" * 200_000
    with anyio.fail_after(20):
        result = await run_process(["cat"], marker=marker, stdin=text)
    assert result.stdout == text


async def test_input_that_is_not_read_is_no_error(marker: str) -> None:
    """A command may end, or close its stdin, before it has read what it was given."""
    with anyio.fail_after(20):
        ended = await run_process(["true"], marker=marker, stdin=b"x" * 5_000_000)
        closed = await run_process("exec <&-; echo on", marker=marker, stdin=b"x" * 5_000_000)
    assert (ended.exit_code, closed.stdout) == (0, "on\n")


async def test_output_that_is_no_utf8_is_replaced(marker: str) -> None:
    """Bytes that are no UTF-8 become U+FFFD, and what is around them stays."""
    result = await run_process(r"printf 'a\377\303b'", marker=marker)
    assert result.stdout == "a\ufffd\ufffdb"


async def test_a_character_may_arrive_in_pieces(marker: str) -> None:
    """Text printed byte by byte is heard as the characters it is made of."""
    heard: list[tuple[str, str]] = []
    program = "import os\nfor b in 'é€😀\\n'.encode() + b'\\xe2': os.write(2, bytes([b]))"
    result = await run_process(
        [*PYTHON, program],
        marker=marker,
        on_output=lambda stream, text: heard.append((stream, text)),
    )
    assert "".join(text for _, text in heard) == result.stderr == "é€😀\n\ufffd"
    assert {stream for stream, _ in heard} == {"stderr"}


async def test_many_megabytes_take_bounded_memory(marker: str) -> None:
    """Of 30 MB both ends are kept, the rest is counted, and memory stays near the limit."""
    heard_chars = 0

    def listen(stream: str, text: str) -> None:
        nonlocal heard_chars
        heard_chars += len(text)

    command = "echo first; head -c 30000000 /dev/zero; echo last"
    tracemalloc.start()
    try:
        with anyio.fail_after(30):
            result = await run_process(
                command, marker=marker, on_output=listen, limit_bytes=1 << 20
            )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    total = len("first\n") + 30_000_000 + len("last\n")
    assert result.stdout_truncated_bytes == total - (1 << 20)
    assert f"\n[... {total - (1 << 20)} bytes left out ...]\n" in result.stdout
    assert result.stdout.startswith("first\n")
    assert result.stdout.endswith("last\n")
    assert heard_chars == total
    assert peak_bytes < 8 << 20


async def test_a_command_that_is_not_there_leaves_nothing(marker: str, tmp_path: Path) -> None:
    """A missing program, or a missing directory, is an error that names it."""
    with pytest.raises(CommandNotFound, match="'no-such-program': no program of this name"):
        await run_process(["no-such-program"], marker=marker)
    with pytest.raises(CommandNotFound, match=r"working directory '.*gone' does not exist"):
        await run_process("true", marker=marker, cwd=tmp_path / "gone")


async def test_a_cancelled_caller_starts_nothing(marker: str) -> None:
    """Where cancellation is already due, it is not even noticed that the program is missing."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_process(["no-such-program"], marker=marker)
    assert scope.cancelled_caught


# What a command leaves behind


async def test_a_background_process_that_holds_the_output_does_not_hang_it(marker: str) -> None:
    """The command's end is not that of its background process, which is ended and counted."""
    with anyio.fail_after(20):
        result = await run_process("sleep 60 & echo done", marker=marker)
    assert (result.exit_code, result.stdout, result.leftovers) == (0, "done\n", 1)


async def test_what_background_processes_soon_say_is_kept(marker: str) -> None:
    """Output that comes shortly after the command's own end belongs to it."""
    result = await run_process("(sleep 0.1; echo late) & echo now", marker=marker)
    assert (result.stdout, result.leftovers) == ("now\nlate\n", 0)


async def test_the_last_words_of_a_background_process_are_kept(marker: str) -> None:
    """What a leftover prints when it is ended belongs to the command's output."""
    command = "(trap 'echo bye; exit' TERM; echo on; while :; do sleep 0.05; done) & read x; exit 0"
    with anyio.fail_after(20):
        result = await run_process(command, marker=marker)
    assert (result.exit_code, result.stdout) == (0, "on\nbye\n")


async def test_the_end_of_one_stream_is_not_taken_for_silence(marker: str) -> None:
    """After the output has ended, what still comes as error output is waited for."""
    command = "(exec >&-; sleep 0.2; echo late >&2) & echo now"
    result = await run_process(command, marker=marker)
    assert (result.stdout, result.stderr, result.leftovers) == ("now\n", "late\n", 0)


async def test_a_background_process_that_never_stops_printing_is_ended(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output without an end does not keep a command alive that has exited."""
    monkeypatch.setattr(run_module, "DRAIN_S", 0.2)
    with anyio.fail_after(20):
        result = await run_process("yes & exit 4", marker=marker, limit_bytes=100)
    assert (result.exit_code, result.leftovers) == (4, 1)


@pytest.mark.parametrize("launcher", ["", "setsid ", "nohup ", "setsid nohup "])
async def test_a_daemon_with_its_outputs_closed_is_ended(launcher: str, marker: str) -> None:
    """A process that detached itself in every way but its environment does not outlive its step."""
    with anyio.fail_after(20):
        result = await run_process(f"{launcher}sleep 60 <&- >&- 2>&- &", marker=marker)
    assert result.leftovers == 1


async def test_daemons_in_the_midst_of_an_exec_are_found(marker: str, tmp_path: Path) -> None:
    """Processes that have no environment to read for most of the time are ended all the same."""
    restless = tmp_path / "restless"
    restless.write_text('#!/bin/sh\nexec "$0"\n')
    restless.chmod(0o755)
    daemon = f"setsid {restless} <&- >&- 2>&- & "
    with anyio.fail_after(20):
        result = await run_process(daemon * 5, marker=marker)
    assert result.leftovers == 5


async def test_a_stubborn_leftover_is_killed_after_the_grace(marker: str) -> None:
    """A detached process that ignores SIGTERM is killed, and the result still comes."""
    command = (
        'd=$(mktemp -d); mkfifo "$d/f"; '
        f'setsid sh -c "{IGNORES_SIGTERM}" >"$d/f" & read line <"$d/f"; rm -r "$d"; exit 5'
    )
    with anyio.fail_after(20):
        result = await run_process(command, marker=marker, grace_s=0.2)
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.leftovers >= 1


# Cancellation


async def test_cancelling_ends_a_command_with_all_its_children(marker: str) -> None:
    """Children in the group, in other sessions and in the background end, well within the grace."""
    command = "setsid sleep 60 & sleep 60 & echo ready; sleep 60"
    _, took_s = await cancelled_when_ready(command, marker, grace_s=15)
    assert took_s < 10


async def test_a_command_that_ignores_sigterm_is_killed(marker: str) -> None:
    """After the grace there is SIGKILL, for the command and for children that ignore it too."""
    _, took_s = await cancelled_when_ready(IGNORES_SIGTERM, marker, grace_s=0.3)
    assert 0.3 <= took_s < 10


async def test_no_grace_means_sigkill_at_once(marker: str) -> None:
    """With ``grace_s=0`` a command that ignores SIGTERM ends all the same."""
    _, took_s = await cancelled_when_ready(IGNORES_SIGTERM, marker, grace_s=0)
    assert took_s < 10


async def test_the_last_words_of_a_cancelled_command_are_heard(marker: str) -> None:
    """A command may clean up on SIGTERM, and what it prints meanwhile, however much, is read."""
    program = """
import signal, sys

def leave(*_):
    print("x" * 300_000)
    print("bye")
    sys.exit()

signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
signal.pause()
"""
    text, took_s = await cancelled_when_ready([*PYTHON, program], marker, grace_s=15)
    assert text.count("x") == 300_000
    assert text.endswith("bye\n")
    assert took_s < 10


async def test_a_command_that_forks_on_sigterm_does_not_escape(marker: str) -> None:
    """Processes that are born after SIGTERM are found by the next look."""
    command = "trap 'setsid sleep 60 & exit' TERM; echo ready; while :; do sleep 0.05; done"
    await cancelled_when_ready(command, marker, grace_s=0.3)


async def test_a_timeout_around_a_command_ends_it(marker: str) -> None:
    """The deadline of a scope around the call is honoured."""
    started_s = time.monotonic()
    with anyio.fail_after(20), anyio.move_on_after(0.1) as scope:
        await run_process("sleep 60", marker=marker)
    assert scope.cancelled_caught
    assert time.monotonic() - started_s < 10


async def test_ending_one_command_leaves_another_alone(marker: str) -> None:
    """A command that runs at the same time under its own marker ends as it would have."""
    other: list[ProcessResult] = []

    async def run_other(ready: anyio.Event, go: Path) -> None:
        command = f"echo ready; while [ ! -e {go} ]; do sleep 0.02; done; echo unharmed"
        other.append(
            await run_process(
                command, marker=f"{marker}2", on_output=lambda stream, text: ready.set()
            )
        )

    with anyio.fail_after(20):
        async with anyio.TemporaryDirectory() as folder, anyio.create_task_group() as group:
            ready, go = anyio.Event(), Path(folder) / "go"
            group.start_soon(run_other, ready, go)
            await ready.wait()
            await cancelled_when_ready("setsid sleep 60 & echo ready; sleep 60", marker)
            go.touch()
    assert [(result.exit_code, result.stdout) for result in other] == [(0, "ready\nunharmed\n")]


async def test_many_commands_run_at_once(marker: str) -> None:
    """Thirty commands in one loop each give their own output."""
    outputs: dict[int, str] = {}

    async def run(number: int) -> None:
        result = await run_process(f"sleep 0.05 & echo {number}; wait", marker=f"{marker}-{number}")
        outputs[number] = result.stdout

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(run, number)
    assert outputs == {number: f"{number}\n" for number in range(30)}


async def test_an_error_of_the_listener_ends_the_command_and_comes_out(marker: str) -> None:
    """What ``on_output`` raises reaches the caller as it is, after one call."""
    calls: list[str] = []

    def listen(stream: str, text: str) -> None:
        calls.append(text)
        raise LookupError("listener")

    command = "trap 'echo bye; exit' TERM; echo a; sleep 60; :"
    with anyio.fail_after(20), pytest.raises(LookupError, match="listener"):
        await run_process(command, marker=marker, on_output=listen, grace_s=0.3)
    assert calls == ["a\n"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelling_the_task_of_the_host_ends_the_command(marker: str) -> None:
    """A plain ``Task.cancel`` of asyncio ends the tree as a cancel scope does."""
    ready = asyncio.Event()
    task = asyncio.create_task(
        run_process(
            "echo ready; setsid sleep 60 & sleep 60",
            marker=marker,
            on_output=lambda stream, text: ready.set(),
        )
    )
    await ready.wait()
    task.cancel()
    with anyio.fail_after(10), pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_second_cancel_does_not_wait_for_the_grace(marker: str) -> None:
    """While a stubborn command has its grace, another ``Task.cancel`` kills it at once."""
    step = asyncio.Event()
    command = "trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done"

    def listen(stream: str, text: str) -> None:
        if stream == "stdout":
            step.set()

    task = asyncio.create_task(run_process(command, marker=marker, on_output=listen, grace_s=3600))
    with anyio.fail_after(10):
        await step.wait()
        task.cancel()
        step.clear()
        await step.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_kill_marked_ends_a_running_command(marker: str) -> None:
    """A command killed from outside by its marker has the exit code of SIGKILL."""
    killed: list[int] = []

    def kill(stream: str, text: str) -> None:
        killed.append(kill_marked(marker.partition("/")[0]))

    with anyio.fail_after(20):
        result = await run_process(IGNORES_SIGTERM, marker=marker, on_output=kill)
    assert result.exit_code == -9
    assert killed[0] >= 1


# Where the system offers less


@pytest.fixture
def bare_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A POSIX system without pidfd and without ``/proc``."""

    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(ending, "HAS_PROC", False)


@pytest.mark.usefixtures("bare_system")
async def test_without_proc_the_group_is_still_ended(marker: str) -> None:
    """Exit codes are right, leftovers of the group go, and cancelling ends the group."""
    with anyio.fail_after(20):
        plain = await run_process("echo hi; exit 3", marker=marker)
        leaving = await run_process("sleep 60 & exit 4", marker=marker, grace_s=0.2)
    await cancelled_when_ready("sleep 60 & echo ready; sleep 60", marker, grace_s=0.2)
    await cancelled_when_ready(IGNORES_SIGTERM, marker, grace_s=0.2)
    assert (plain.exit_code, plain.stdout, plain.leftovers) == (3, "hi\n", 0)
    assert (leaving.exit_code, leaving.leftovers) == (4, 1)
