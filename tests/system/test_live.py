"""Programs that are talked with while they run, and of which nothing is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.errors import CommandNotFound
from handrail.system import ending
from handrail.system import live as live_module
from handrail.system.live import Exited, Line, LiveProcess, open_live
from handrail.system.run import kill_marked
from tests.leftovers import nothing_left, open_files

PYTHON = [sys.executable, "-c"]
# Not a plain `sleep`: a shell that is interrupted while it starts one loses the interruption.
WAITS = "trap 'exit 130' INT; echo ready; while :; do sleep 0.05; done"
STUBBORN = "trap '' INT TERM; echo ready; while :; do sleep 60; done"


LINGERS = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
tool = subprocess.Popen(["sleep", "0.6"])
signal.signal(signal.SIGINT, lambda *_: None)
print("ready", flush=True)
tool.wait()
while True:
    time.sleep(60)
"""
"""Its tool takes a moment to end after SIGINT, and it stays."""


@pytest.fixture
def marker() -> Iterator[str]:
    """A marker of its own; afterwards no process carries it, no child and no file is left."""
    marker = f"test-{uuid.uuid4().hex}/step"
    with nothing_left(marker):
        yield marker


async def heard(live: LiveProcess) -> tuple[list[tuple[str, bytes]], int | None]:
    """All lines until the program has exited, and its exit code."""
    lines: list[tuple[str, bytes]] = []
    with anyio.fail_after(30):
        while not isinstance(item := await live.next(), Exited):
            assert item is not None
            lines.append((item.stream, item.data))
    return lines, item.code


async def run(
    argv: list[str] | str, marker: str, stdin: bytes = b"", **options: Any
) -> tuple[list[bytes], int]:
    """The lines of stdout of a program that is left to end by itself, and its exit code."""
    async with open_live(argv, marker=marker, stdin=stdin, **options) as live:
        lines, code = await heard(live)
    assert code is not None
    return [data for stream, data in lines if stream == "stdout"], code


async def first_line(live: LiveProcess, expected: bytes = b"ready") -> None:
    """Wait for it."""
    with anyio.fail_after(20):
        item = await live.next()
    assert item == Line("stdout", expected)


# What is heard


async def test_lines_of_both_streams_come_and_then_the_exit(marker: str) -> None:
    """Lines of each stream come in order, the exit code last, and after it only that."""
    command = r"echo one; printf 'two\r\n'; echo oops >&2; printf three; exit 3"
    async with open_live(command, marker=marker, stdin=b"") as live:
        lines, code = await heard(live)
        assert await live.next() == await live.next(0) == Exited(3)
    assert [data for stream, data in lines if stream == "stdout"] == [b"one", b"two", b"three"]
    assert [data for stream, data in lines if stream == "stderr"] == [b"oops"]
    assert (code, live.stderr_tail) == (3, "oops\n")


async def test_lines_that_came_together_are_there_without_waiting(marker: str) -> None:
    """After the first of several lines the others can be taken at once, and then the exit."""
    async with open_live("printf 'a\\nb\\nc\\n'", marker=marker) as live:
        await first_line(live, b"a")
        assert [line.data for line in live.ready()] == [b"b", b"c"]
        assert list(live.ready()) == []
        assert await heard(live) == ([], 0)


async def test_a_line_of_twenty_megabytes_comes_whole(marker: str) -> None:
    """A long line between two short ones is one line."""
    program = "print('a'); print('x' * 20_000_000); print('b')"
    lines, _ = await run([*PYTHON, program], marker)
    assert [len(line) for line in lines] == [1, 20_000_000, 1]


async def test_characters_may_come_byte_by_byte(marker: str) -> None:
    """A line whose every byte was written alone is the line that was meant."""
    program = "import os\nfor b in 'é€😀 ü\\n'.encode(): os.write(1, bytes([b]))"
    lines, _ = await run([*PYTHON, program], marker)
    assert [line.decode() for line in lines] == ["é€😀 ü"]


async def test_a_megabyte_of_errors_does_not_block_the_program(marker: str) -> None:
    """A program may complain at length before its answer, and the end of that is kept."""
    program = "import sys; sys.stderr.write('x' * (1 << 20) + 'é'); print('done')"
    async with open_live([*PYTHON, program], marker=marker, stdin=b"") as live:
        lines, _ = await heard(live)
    assert ("stdout", b"done") in lines
    assert live.stderr_tail == "x" * ((64 << 10) - 2) + "é"


async def test_silence_is_told_when_the_time_is_out(marker: str) -> None:
    """A program that says nothing gives None; what it says later is not lost."""
    async with open_live("read go; echo ready; exec sleep 60", marker=marker) as live:
        assert await live.next(0) is None
        assert await live.next(0.05) is None
        assert live.heard_s is None
        live.send(b"go\n")
        await first_line(live)


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_byte_on_either_stream_is_a_sign_of_life(stream: int, marker: str) -> None:
    """A piece of a line, which is no line yet, shows in when the program was last heard."""
    async with open_live(f"printf . >&{stream}; exec sleep 60", marker=marker) as live:
        before = time.monotonic()
        with anyio.fail_after(20):
            while live.heard_s is None:
                assert await live.next(0.05) is None
        assert before - 5 < live.heard_s <= time.monotonic()


async def test_a_program_killed_from_outside_has_exited(marker: str) -> None:
    """SIGKILL from elsewhere is heard as the exit, after what was said before it."""
    both_at_once = "printf 'ready\\nlast\\n'; exec sleep 60"
    async with open_live(both_at_once, marker=marker) as live:
        await first_line(live)
        os.kill(live.pid, signal.SIGKILL)
        assert await heard(live) == ([("stdout", b"last")], -9)


async def test_a_program_swept_from_outside_has_exited(marker: str) -> None:
    """What ends all processes of a run ends this one too, and it is heard."""
    async with open_live(STUBBORN, marker=marker) as live:
        await first_line(live)
        assert kill_marked(marker.partition("/")[0]) >= 1
        assert (await heard(live))[1] == -9


async def test_the_environment_is_the_one_given(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``env`` nothing is inherited; without it all is. The marker is there in both cases."""
    monkeypatch.setenv("INHERITED", "a")
    command = "echo $INHERITED,$OWN,$HANDRAIL_STEP"
    own = {"PATH": os.environ["PATH"], "OWN": "b"}
    async with open_live(command, marker=marker, env=own) as live:
        await first_line(live, f",b,{marker}".encode())
    async with open_live(command, marker=marker) as live:
        await first_line(live, f"a,,{marker}".encode())


# What is sent


async def test_a_program_is_talked_with(marker: str) -> None:
    """Each line that is sent is answered before the next one is, until stdin is closed."""
    async with open_live(["cat"], marker=marker) as live:
        for number in range(50):
            live.send(f"{number}\n".encode())
            await first_line(live, str(number).encode())
        live.send(b"x" * 1_000_000 + b"\n")
        await first_line(live, b"x" * 1_000_000)
        live.send(b"bye")
        live.close_stdin()
        assert await heard(live) == ([("stdout", b"bye")], 0)


async def test_more_than_a_pipe_holds_is_sent_and_heard_at_once(marker: str) -> None:
    """Five megabytes in several pieces come back whole from a program that echoes them."""
    async with open_live(["cat"], marker=marker) as live:
        for _ in range(5):
            live.send(b"x" * 1_000_000)
        live.close_stdin()
        lines, code = await heard(live)
    assert ([len(data) for _, data in lines], code) == ([5_000_000], 0)


async def test_all_of_stdin_may_be_given_at_the_start(marker: str) -> None:
    """A program reads what it was given and then the end, at once if that is nothing."""
    assert await run(["cat"], marker, b"a\nb\n") == ([b"a", b"b"], 0)
    assert await run(["cat"], marker, b"") == ([], 0)
    assert await run(["wc", "-c"], marker, b"x" * 3_000_000) == ([b"3000000"], 0)


async def test_what_is_not_read_any_more_is_dropped(marker: str) -> None:
    """To send to a program that has closed its stdin, or has exited, is no error."""
    async with open_live("exec <&-; echo ready; read x", marker=marker) as live:
        await first_line(live)
        live.send(b"x" * 1_000_000)
        live.send(b"more")
        assert (await heard(live))[1] is not None
        live.send(b"late")
        live.close_stdin()
    live.close_stdin()


# How it ends


async def test_it_may_end_by_itself_on_an_interrupt(marker: str) -> None:
    """SIGINT comes first, and what the program then says can still be asked for."""
    command = "trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    async with open_live(command, marker=marker) as live:
        await first_line(live)
        assert await live.stop(interrupt_s=20) == 5
        assert await heard(live) == ([("stdout", b"bye")], 5)
        assert await live.stop() == 5


async def test_sigterm_follows_an_interrupt_that_did_not_help(marker: str) -> None:
    """A program that ignores SIGINT is sent SIGTERM after the time it had."""
    command = "trap '' INT; trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    async with open_live(command, marker=marker) as live:
        await first_line(live)
        assert await live.stop(interrupt_s=0.2, grace_s=20) == 7


async def test_a_program_that_ignores_both_is_killed(marker: str) -> None:
    """After both times there is SIGKILL, for the program and for what it started."""
    async with open_live(STUBBORN, marker=marker) as live:
        await first_line(live)
        started_s = time.monotonic()
        assert await live.stop(interrupt_s=0.2, grace_s=0.2) == -9
        assert 0.4 <= time.monotonic() - started_s < 10


async def test_a_program_that_only_lingers_is_killed_soon(marker: str) -> None:
    """Once nothing that it started is left; while something is, it has all its time."""
    async with open_live([*PYTHON, LINGERS], marker=marker, alone_s=0.2) as live:
        await first_line(live)
        started_s = time.monotonic()
        assert await live.stop(interrupt_s=20, grace_s=20) == -9
        assert 0.5 < time.monotonic() - started_s < 10


async def test_tools_in_sessions_of_their_own_end_with_it(marker: str) -> None:
    """What left the group and the session is found by its marker."""
    command = f"setsid sleep 60 & setsid nohup sleep 60 <&- >&- 2>&- & {WAITS}"
    async with open_live(command, marker=marker) as live:
        await first_line(live)
        await live.stop(interrupt_s=5)


async def test_a_pipe_held_open_does_not_hide_the_exit(marker: str) -> None:
    """An exit is told though a process that was left behind, in its own session, holds stdout."""
    with anyio.fail_after(20):
        assert await run("setsid sleep 60 & echo ready; exit 4", marker) == ([b"ready"], 4)


async def test_what_is_soon_said_after_the_exit_is_heard(marker: str) -> None:
    """A background process of an exited program has a moment to say its last line."""
    assert await run("(sleep 0.2; echo late) & echo now", marker) == ([b"now", b"late"], 0)


async def test_endless_output_after_the_exit_is_ended(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A background process that never stops printing does not keep the exit from being told."""
    monkeypatch.setattr(live_module, "DRAIN_S", 0.3)
    _, code = await run("while :; do echo y; sleep 0.01; done & exit 6", marker)
    assert code == 6


async def test_the_end_of_its_stdout_is_no_exit(marker: str) -> None:
    """It is known when a program closed its stdout, and its own exit is waited for."""
    words = "exec >&-; echo closed >&2; read go; exit 3"
    async with open_live(words, marker=marker) as live:
        assert live.closed_s is None
        assert await live.next() == Line("stderr", b"closed")
        assert await live.next(0.05) is None
        assert live.closed_s is not None
        live.send(b"go\n")
        assert await live.next() == Exited(3)


async def test_what_it_said_before_its_end_is_not_lost(marker: str) -> None:
    """All that stands in the pipe when a program is ended, however much, can still be asked for."""
    program = """
import fcntl, os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.fcntl(1, 1031, 1 << 20)  # F_SETPIPE_SZ
os.write(1, b"x" * 900_000)
os.write(2, b"ready\\n")
signal.pause()
"""
    async with open_live([*PYTHON, program], marker=marker) as live:
        with anyio.fail_after(20):
            assert await live.next() == Line("stderr", b"ready")
        assert await live.stop(interrupt_s=20) == -signal.SIGINT
        assert await heard(live) == ([("stdout", b"x" * 900_000)], -signal.SIGINT)


async def test_a_flood_while_it_is_ended_takes_bounded_memory(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is printed while nobody listens only so much is kept, and the rest is dropped."""
    monkeypatch.setattr(live_module, "UNREAD_BYTES", 1 << 18)
    async with open_live("trap '' INT TERM; echo ready; exec yes", marker=marker) as live:
        await first_line(live)
        await live.stop(interrupt_s=0.05, grace_s=0.05)
        lines, code = await heard(live)
    assert code == -9
    assert len(lines) <= (1 << 18) / live_module.LINE_COST_BYTES


async def test_what_comes_with_a_line_of_any_length_is_heard(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line before the last is as long as all that may be unread, the last one the result."""
    monkeypatch.setattr(live_module, "UNREAD_BYTES", 1 << 20)
    program = "import sys; sys.stdout.write('x' * (3 << 20) + '\\nresult\\n')"
    async with open_live([*PYTHON, program], marker=marker) as live:
        lines, code = await heard(live)
    assert code == 0
    assert [(stream, len(data)) for stream, data in lines] == [("stdout", 3 << 20), ("stdout", 6)]


# Cancellation


async def test_leaving_the_block_ends_it(marker: str) -> None:
    """A program that was not stopped does not outlive the block, whatever ends that."""
    command = f"setsid sleep 60 & {WAITS}"
    async with open_live(command, marker=marker) as live:
        await first_line(live)
    assert isinstance(await live.next(), Exited)


async def test_an_error_in_the_block_ends_it_and_comes_out(marker: str) -> None:
    """What is raised in the block reaches the caller as it is, after the program has ended."""

    async def fail() -> None:
        async with open_live(f"setsid sleep 60 & {WAITS}", marker=marker) as live:
            await first_line(live)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()


async def test_cancelling_ends_it_before_it_goes_on(marker: str) -> None:
    """A cancelled caller that waits for a line leaves nothing running."""
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with open_live(f"setsid sleep 60 & {WAITS}", marker=marker) as live:
            await first_line(live)
            scope.cancel()
            await live.next()
    assert scope.cancelled_caught
    assert await live.stop() is not None


async def test_a_cancelled_program_may_still_tidy_up(marker: str) -> None:
    """Cancelling is an interruption, which the program has time to answer, and its words count."""
    command = "trap 'sleep 0.1; echo bye; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with open_live(command, marker=marker) as live:
            await first_line(live)
            scope.cancel()
            await live.next()
    assert list(live.ready()) == [Line("stdout", b"bye")]
    assert await live.stop() == 5


async def test_a_cancelled_caller_starts_nothing(marker: str) -> None:
    """Where cancellation is already due, it is not even noticed that the program is missing."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with open_live(["no-such-program"], marker=marker):
            pass
    assert scope.cancelled_caught


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_second_cancel_kills_at_once(marker: str) -> None:
    """While a stubborn program has its grace, another ``Task.cancel`` of asyncio does not wait."""
    ready, files = asyncio.Event(), open_files()

    async def hold() -> None:
        async with open_live(STUBBORN, marker=marker) as live:
            await first_line(live)
            ready.set()
            try:
                await live.next()
            finally:
                await live.stop(interrupt_s=3600)

    task = asyncio.create_task(hold())
    with anyio.fail_after(20):
        await ready.wait()
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while open_files() > files:  # noqa: ASYNC110  # the loop closes them, and tells nobody
            await anyio.sleep(0.01)


# A program that updates itself


async def while_it_is_started(
    argv: list[str], marker: str, finish_update: Callable[[], Awaitable[None]]
) -> list[bytes]:
    """The output of a program whose update is finished after its first start has failed."""
    outputs: list[bytes] = []

    async def start() -> None:
        lines, _ = await run(argv, marker)
        outputs.extend(lines)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await anyio.wait_all_tasks_blocked()
            assert outputs == []
            await finish_update()
    return outputs


async def test_a_program_that_is_being_written_is_waited_for(marker: str, tmp_path: Path) -> None:
    """A file that is open for writing ("text file busy") is started when it has been closed."""
    program = tmp_path / "agent"
    shutil.copy("/bin/echo", program)
    writer = program.open("r+b")

    async def close() -> None:
        writer.close()

    assert await while_it_is_started([str(program), "hi"], marker, close) == [b"hi"]


async def test_a_program_that_is_away_for_a_moment_is_waited_for(
    marker: str, tmp_path: Path
) -> None:
    """A file that is only now moved to its place is started from there."""
    program = tmp_path / "agent"

    async def install() -> None:
        new = tmp_path / "agent.new"
        new.write_text("#!/bin/sh\necho hi\n")
        new.chmod(0o755)
        new.rename(program)

    assert await while_it_is_started([str(program)], marker, install) == [b"hi"]


async def test_a_program_that_is_not_there_is_refused(marker: str) -> None:
    """What stays missing is an error that names it, well before one loses patience."""
    with anyio.fail_after(10), pytest.raises(CommandNotFound, match="'no-such-program'"):
        async with open_live(["no-such-program"], marker=marker):
            pass


# Where the system offers less


async def test_without_proc_the_group_is_still_ended(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is neither pidfd nor ``/proc`` programs are talked with and ended as well."""

    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(ending, "HAS_PROC", False)
    assert await run("read x; echo $x; exit 4", marker, b"on\n") == ([b"on"], 4)
    async with open_live(f"sleep 60 & {STUBBORN}", marker=marker) as live:
        await first_line(live)
        assert await live.stop(interrupt_s=0.2, grace_s=0.2) == -9
