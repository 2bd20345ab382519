"""An error about a command that could not start tells its author what to change."""

from __future__ import annotations

import copy
import errno
import os
import pickle  # noqa: TID251 - that errors survive it is what is tested
import resource
from pathlib import Path

import pytest

from handrail.errors import CommandNotFound
from handrail.system.spawn import CommandNotStarted, checked, open_selector, why_not_started


def refusal(argv: list[str], cwd: Path | None = None, path: str | None = None) -> str:
    """Why these words cannot be started."""
    env = dict(os.environ) if path is None else {"PATH": path}
    with pytest.raises(CommandNotFound) as caught:
        checked(argv, cwd=cwd, env=env, has_stdin=False).spawn()
    return caught.value.why


def script(folder: Path, name: str, text: str, mode: int = 0o755) -> Path:
    """A file with this text and mode."""
    file = folder / name
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_program_that_is_nowhere_on_path(tmp_path: Path) -> None:
    """A name that resembles no program is said to be absent, without a guess."""
    assert refusal(["zq"], path=str(tmp_path)) == "no program of this name is on PATH."


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pytset", "pytest"),
        ("gti", "git"),
        ("claud", "claude"),
        ("makee", "make"),
        ("pythom", "python"),
        ("lint", ""),  # another program than link
        ("nope", ""),
        ("gone", ""),
    ],
)
def test_a_misspelt_program_is_answered_with_what_was_meant(
    tmp_path: Path, typed: str, meant: str
) -> None:
    """Programs on the command's own PATH are offered that are one slip away, and no others."""
    for name in ("pytest", "python", "git", "gsutil", "gcloud", "claude", "make", "link", "open"):
        script(tmp_path, name, "#!/bin/sh\n")
    (tmp_path / "gone").symlink_to("nowhere")
    hint = f" Did you mean {meant}?" if meant else ""
    said = refusal([typed], path=str(tmp_path))
    assert said == f"no program of this name is on PATH.{hint}"


def test_a_whole_command_in_the_first_word(tmp_path: Path) -> None:
    """A program name with blanks leads to the two spellings that would work."""
    why = refusal(["git status"], path=str(tmp_path))
    assert "write them as separate words (['git', ...])" in why
    assert "one text" in why


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A relative file is said to be missing in the working directory it was looked for in."""
    assert refusal(["./build"], tmp_path) == f"there is no such file in {str(tmp_path)!r}."


def test_a_working_directory_that_is_not_there(tmp_path: Path) -> None:
    """A missing working directory is told from a missing program."""
    gone = tmp_path / "gone"
    assert refusal(["true"], gone) == f"its working directory {str(gone)!r} does not exist"


def test_a_working_directory_that_is_a_file(tmp_path: Path) -> None:
    """A file as working directory is called what it is."""
    file = script(tmp_path, "file", "")
    assert refusal(["true"], file) == f"its working directory {str(file)!r} is not a directory"


def test_a_file_that_is_not_executable(tmp_path: Path) -> None:
    """The chmod that makes it executable is spelt out, quoted for the shell."""
    file = script(tmp_path, "a job", "#!/bin/sh\n", 0o644)
    assert refusal([str(file)]) == f"{str(file)!r} is not executable: run `chmod +x '{file}'`"


def test_a_directory_as_a_program(tmp_path: Path) -> None:
    """A directory is called what it is."""
    assert refusal([str(tmp_path)]) == f"{str(tmp_path)!r} is a directory"


def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    """The script is there, so the error names the interpreter of its first line."""
    file = script(tmp_path, "job", "#!/no/such/python -u\nprint()\n")
    assert "wants the interpreter '/no/such/python'" in refusal([str(file)])


def test_a_script_without_a_first_line_that_names_its_interpreter(tmp_path: Path) -> None:
    """An executable text without ``#!`` is told to have none."""
    file = script(tmp_path, "job", "echo hi\n")
    assert "has no #! line" in refusal([str(file)])


def test_arguments_that_are_too_long() -> None:
    """The error has their size, and the other way to pass long input."""
    words = ["true", *["x" * 99_999] * 40]
    with pytest.raises(CommandNotStarted, match=r"arguments are 4000005 bytes.*stdin="):
        checked(words, cwd=None, env={"PATH": "/bin"}, has_stdin=False).spawn()


def test_a_process_with_no_file_left_to_open() -> None:
    """Running out of file descriptors is named, for the selector and for the pipes alike."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(CommandNotStarted, match=r"'true': .*files open.*ulimit -n"):
            open_selector(["true"])
        with pytest.raises(CommandNotStarted, match=r"'true': .*files open.*ulimit -n"):
            checked(["true"], cwd=None, env={}, has_stdin=True).spawn()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EAGAIN, "ulimit -u"),
        (errno.ENOMEM, "no memory left"),
        (errno.ELOOP, r"symbolic links \(errno 40\)"),
    ],
)
def test_a_machine_that_refuses_says_what_it_lacks(number: int, expected: str) -> None:
    """What a fork can fail with has advice, and anything else its system text and number."""
    error = why_not_started(OSError(number, os.strerror(number)), ["true"], None, {})
    with pytest.raises(CommandNotStarted, match=expected):
        raise error


def test_the_error_survives_pickle_and_copy() -> None:
    """Its parts and its text are the same in another process."""
    error = CommandNotStarted("prog", "why")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (twin.program, twin.why, str(twin)) == ("prog", "why", "cannot start 'prog': why")
