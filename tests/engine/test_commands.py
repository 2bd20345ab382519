"""Command steps on bad input: programs that are missing, loud, garbled, deaf, or leave children."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    CommandFailed,
    CommandNotFound,
    CommandResult,
    StepFailed,
    step,
)
from tests.engine.support import caught, just, run_seen


def python(code: str) -> list[str]:
    """A command that runs this code."""
    return [sys.executable, "-c", code]


def runs(pid: int) -> bool:
    """True if a process is there and has not ended; one that nobody reaped yet has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def ran(argv: Any, **options: Any) -> CommandResult[Any]:
    """What a command step gives."""
    result, _ = await run_seen(just(step("c").command(argv, **options)))
    return result.unwrap()  # type: ignore[no-any-return]


async def failed(made: Any) -> StepFailed:
    """What a step throws."""
    flow = caught(made, lambda failed: failed)
    result, _ = await run_seen(flow)
    return result.unwrap()  # type: ignore[no-any-return]


async def test_a_command_gives_exit_code_and_output() -> None:
    """Words are run as they are, a text by the shell."""
    assert await ran(["printf", "%s", "a b"]) == CommandResult(0, "a b", "", None)
    assert await ran("printf out; printf err >&2") == CommandResult(0, "out", "err", None)


async def test_a_command_takes_cwd_env_and_stdin(tmp_path: Path) -> None:
    """cwd, env (added to ours) and stdin reach the program."""
    got = await ran(
        'pwd; printf "$X"; test -n "$PATH"; cat', cwd=tmp_path, env={"X": "1"}, stdin="in"
    )
    assert got.stdout == f"{tmp_path.resolve()}\n1in"  # noqa: ASYNC240  # it waits for nothing


async def test_a_command_without_stdin_reads_an_empty_one() -> None:
    """A program that reads its input does not wait for a terminal."""
    with anyio.fail_after(5):
        assert (await ran(["cat"])).stdout == ""


async def test_parse_reads_json_from_stdout() -> None:
    """`parse=T` gives typed data."""
    assert (await ran("echo '[1, 2]'", parse=list[int])).data == [1, 2]


@pytest.mark.parametrize("printed", ["not json", "", '["a"]'])
async def test_what_does_not_parse_fails_the_step(printed: str) -> None:
    """Output that is no JSON, or of another type, fails the step, saying what came."""
    error = await failed(step("c").command(["printf", "%s", printed], parse=list[int]))
    assert "parse" in str(error)


async def test_an_exit_code_other_than_zero_fails_the_step() -> None:
    """The error has the command, the code and what was printed last."""
    error = await failed(step("c").command("echo out; echo wrong >&2; exit 3"))
    assert error.is_a(CommandFailed)
    assert "exited with 3: wrong" in str(error)


async def test_without_check_an_exit_code_is_a_result() -> None:
    """`check=False` gives the exit code; a signal's is negative."""
    assert (await ran("exit 3", check=False)).exit_code == 3
    assert (await ran("kill -9 $$", check=False)).exit_code == -9


async def test_a_program_that_does_not_exist_fails_its_step() -> None:
    """The step fails, naming the program and where it was looked for."""
    error = await failed(step("c").command(["no-such-program-x"]))
    assert error.is_a(CommandNotFound)
    assert error.is_a(FileNotFoundError)
    assert "no-such-program-x" in str(error)
    assert "PATH" in str(error)


async def test_a_working_directory_that_does_not_exist_fails_its_step() -> None:
    """The step fails, naming the directory and not the program."""
    error = await failed(step("c").command(["true"], cwd="/no/such/folder"))
    assert "/no/such/folder" in str(error)


async def test_a_shell_command_that_does_not_exist_fails_its_step() -> None:
    """The shell's exit code 127 and its text are told."""
    error = await failed(step("c").command("no-such-program-x"))
    assert "127" in str(error)
    assert "no-such-program-x" in str(error)


async def test_many_megabytes_of_output_do_not_break_a_run() -> None:
    """What is kept of an endless output is bounded, has both ends, and says what was left out."""
    code = (
        "import sys\nsys.stdout.write('first\\n')\nline = 'x' * 1023 + '\\n'\n"
        "[sys.stdout.write(line * 1024) for _ in range(30)]\nsys.stdout.write('last\\n')"
    )
    with anyio.fail_after(60):
        got = await ran(python(code))
    assert got.exit_code == 0
    assert got.stdout.startswith("first\n")
    assert got.stdout.endswith("last\n")
    assert "left out" in got.stdout
    assert len(got.stdout) < 10_000_000


async def test_output_that_is_no_utf8_is_replaced() -> None:
    """Bytes that do not decode become U+FFFD, and the rest is kept."""
    got = await ran(python("import sys; sys.stdout.buffer.write(b'a\\xff\\xc3b')"))
    assert got.stdout == "a\ufffd\ufffdb"


async def test_a_command_that_ignores_sigterm_is_killed_after_its_timeout() -> None:
    """A timeout ends a program that is deaf to SIGTERM, and the step fails as timed out."""
    code = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    begun = time.monotonic()
    error = await failed(step("c").command(python(code)).timeout(0.3))
    assert error.is_a(TimeoutError)
    assert time.monotonic() - begun < 15


async def test_a_child_that_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    """The step ends with its program, and what the program left in the background is ended."""
    file = tmp_path / "pid"
    with anyio.fail_after(15):
        got = await ran(f"sleep 60 & echo $! > {file}; echo done")
    assert got.stdout == "done\n"
    assert not runs(int(file.read_text()))


@pytest.mark.parametrize("argv", [[], "", (), 3, [1, 2], None, ["a", None]])
def test_a_command_needs_words(argv: Any) -> None:
    """No program, or words that are no text, are refused at the user's line."""
    with pytest.raises((TypeError, ValueError), match="'c'"):
        step("c").command(argv)


@pytest.mark.parametrize("word", ["a\0b"])
async def test_a_word_that_no_program_can_be_given_fails_its_step(word: str) -> None:
    """A null byte fails the step, and not the run's machinery."""
    error = await failed(step("c").command(["echo", word]))
    assert error.result.status == "failed"


async def test_a_path_may_be_a_word() -> None:
    """A pathlib.Path is taken for its text."""
    assert (await ran([Path("/bin/echo"), Path("/x")])).stdout == "/x\n"
