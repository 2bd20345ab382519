"""Why a command could not be started, in words that help the person who wrote it."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

from handrail.errors import CommandNotFound, HandrailError

_NOT_THERE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR)
)
_EXHAUSTED = {
    errno.EAGAIN: "the user or container has as many processes as it may have: run fewer at once, "
    "or raise `ulimit -u`",
    errno.ENOMEM: "the machine has no memory left for another process: run fewer at once",
    errno.EMFILE: "this process has as many files open as it may have: run fewer commands at once, "
    "or raise `ulimit -n`",
    errno.ENFILE: "the machine has as many files open as it can have: run fewer commands at once",
}


class CommandNotStarted(HandrailError):
    """The operating system refused to start a program that is there."""

    def __init__(self, program: str, why: str) -> None:
        super().__init__(program, why)
        self.program = program
        self.why = why

    def __str__(self) -> str:
        return f"cannot start {self.program!r}: {self.why}"


def why_not_started(
    error: OSError, words: Sequence[str], cwd: str | None, env: Mapping[str, str]
) -> HandrailError:
    """The error that tells a person why these words could not be executed, and what to do."""
    program = words[0]
    if cwd is not None and (why := _why_no_folder(cwd)):
        return CommandNotFound(program, why)
    if error.errno in _NOT_THERE:
        return CommandNotFound(program, _why_no_program(error, program, cwd, env))
    if error.errno == errno.E2BIG:
        size = sum(len(os.fsencode(word)) + 1 for word in words)
        return CommandNotStarted(
            program,
            f"its arguments are {size} bytes, with its environment more than the system takes "
            f"(one argument may have 128 KiB on Linux). Pass long input by stdin= or a file.",
        )
    reason = _EXHAUSTED.get(error.errno or 0, "")
    return CommandNotStarted(program, reason or f"{error.strerror} (errno {error.errno})")


def _why_no_folder(cwd: str) -> str:
    if not os.path.exists(cwd):
        return f"its working directory {cwd!r} does not exist"
    if not os.path.isdir(cwd):
        return f"its working directory {cwd!r} is not a directory"
    if not os.access(cwd, os.X_OK):
        return f"its working directory {cwd!r} may not be entered by this user"
    return ""


def _why_no_program(error: OSError, program: str, cwd: str | None, env: Mapping[str, str]) -> str:
    folders = os.get_exec_path(env)
    file = _find(program, cwd, folders)
    if file is None:
        return _why_not_found(program, cwd, folders)
    if os.path.isdir(file):
        return f"{file!r} is a directory"
    if error.errno == errno.ENOEXEC:
        return f"{file!r} has no #! line and is not a program that this machine can run"
    if not os.access(file, os.X_OK):
        return f"{file!r} is not executable: run `chmod +x {shlex.quote(file)}`"
    if interpreter := _interpreter_of(file):
        return f"{file!r} wants the interpreter {interpreter!r} (its #! line), which cannot be run"
    if error.errno == errno.ENOENT:
        return f"{file!r} was built for another system: the loader it names is not here"
    return f"{file!r} is there, but: {error.strerror}"


def _find(program: str, cwd: str | None, folders: Iterable[str]) -> str | None:
    if "/" in program:
        places: Iterable[str] = (os.path.join(cwd or "", program),)
    else:
        places = (os.path.join(cwd or "", folder, program) for folder in folders)
    return next((place for place in places if os.path.exists(place)), None)


def _why_not_found(program: str, cwd: str | None, folders: Iterable[str]) -> str:
    first, *rest = program.split(maxsplit=1) or [program]
    split = ""
    if rest:
        split = (
            f" If it is a program with arguments, write them as separate words ([{first!r}, ...]), "
            f"or give the whole command as one text to have the shell run it."
        )
    if "/" in program:
        from_where = "" if os.path.isabs(program) else f" in {os.path.abspath(cwd or '.')!r}"
        return f"there is no such file{from_where}.{split}"
    import difflib  # 1 ms that only a misspelt command should cost

    near = difflib.get_close_matches(program, _programs_in(folders), n=3, cutoff=0.66)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"no program of this name is on PATH.{hint}{split}"


def _programs_in(folders: Iterable[str]) -> set[str]:
    names: set[str] = set()
    for folder in folders:
        try:
            names.update(os.listdir(folder))
        except OSError:
            continue
    return names


def _interpreter_of(file: str) -> str:
    try:
        with open(file, "rb") as script:
            first = script.readline(256)
    except OSError:
        return ""
    return os.fsdecode(first[2:].strip().split(b" ")[0]) if first.startswith(b"#!") else ""
