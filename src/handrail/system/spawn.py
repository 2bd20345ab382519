"""Starts child processes, after a check of their arguments."""

from __future__ import annotations

import errno
import os
import selectors
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from handrail.errors import CommandNotFound, DefinitionError, HandrailError
from handrail.model.dataclass import dataclass
from handrail.shortening import shortened

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
    near = sorted(one for one in _programs_in(folders) if _is_slip(program, one))[:3]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"no program of this name is on PATH.{hint}{split}"


def _is_slip(typed: str, meant: str) -> bool:
    """True if the names differ by one letter too many or too few, or by two swapped ones. A wrong
    letter counts only in names of more than 5 letters: a short one may well be another program.
    """
    pairs = enumerate(zip(typed, meant, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(typed), len(meant)))
    mine, its = typed[at:], meant[at:]
    wrong_order = mine[:2] == its[1::-1] and mine[2:] == its[2:]
    other_letter = mine[1:] == its[1:] and len(typed) > 5
    is_near = its == mine[1:] or mine == its[1:] or wrong_order or other_letter
    return is_near and typed != meant  # a dangling link may have this very name


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


@dataclass(frozen=True, slots=True)
class Launchable:
    """What to execute in place of a command: words, environment, descriptors to hand down."""

    words: Sequence[str]
    env: Mapping[str, str]
    descriptors: tuple[int, ...] = ()


class Boundary(Protocol):
    """What is put around a command before it starts, and is told what it prints. Mutable."""

    def entered(
        self, words: Sequence[str], env: Mapping[str, str], /
    ) -> AbstractContextManager[Launchable]:
        """What to execute; it has been started when the block ends."""
        ...

    def heard(self, data: bytes, /) -> None:
        """Take what the command printed."""
        ...

    def end(self) -> None:
        """Take away what was made for the command, once no process of it is left."""
        ...


SHELL = "/bin/sh"

_SHOWN_CHARS = 80


def checked(
    argv: Sequence[str] | str,
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    has_stdin: bool,
    boundary: Boundary | None = None,
) -> Command:
    """A command whose arguments were checked.

    ``env`` is its whole environment. Its stdin is a pipe or ``/dev/null``. ``boundary`` is what it
    runs in.

    Raises:
        DefinitionError: an argument or variable cannot be passed to any program.
    """
    words = arguments(argv)
    check_environment(env)
    folder = None if cwd is None else os.fspath(cwd)
    if folder is not None:
        _check_text(f"the working directory of command {_quoted(words)}", folder)
    return Command(words, folder, env, has_stdin, boundary)


@dataclass(frozen=True, slots=True)
class Command:
    """A command to execute, where, in which environment, and within what; every launch of a
    program of the user's or an agent's is a ``start`` of one.
    """

    words: Sequence[str]
    folder: str | None
    env: Mapping[str, str]
    has_stdin: bool
    boundary: Boundary | None = None

    def spawn(self) -> subprocess.Popen[bytes]:
        """A running child, see ``start``.

        Raises:
            CommandNotFound: the program or the working directory is not there or not usable.
            CommandNotStarted: the arguments are too long, or the machine is out of resources.
        """
        try:
            return self.start()
        except OSError as error:
            raise self.refusal(error) from None

    def start(self) -> subprocess.Popen[bytes]:
        """A running child in a session of its own, its outputs on unbuffered pipes.

        Blocks until the program was executed, which takes a fraction of a millisecond.

        Raises:
            OSError: it cannot be started.
        """
        if self.boundary is None:
            return self._execute(Launchable(self.words, self.env))
        with self.boundary.entered(self.words, self.env) as launchable:
            return self._execute(launchable)

    def _execute(self, launchable: Launchable) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launchable.words,
            cwd=self.folder,
            env=launchable.env,
            pass_fds=launchable.descriptors,
            stdin=subprocess.PIPE if self.has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    def refusal(self, error: OSError) -> HandrailError:
        """The operating system's error, explained for people."""
        return why_not_started(error, self.words, self.folder, self.env)


def open_selector(argv: Sequence[str] | str) -> selectors.DefaultSelector:
    """A selector for the pipes of a command that is to start.

    Raises:
        CommandNotStarted: no more files can be opened.
    """
    try:
        return selectors.DefaultSelector()
    except OSError as error:
        raise why_not_started(error, arguments(argv), None, {}) from None


def arguments(argv: Sequence[str] | str) -> list[str]:
    """The words to execute: ``argv``, or those that have a shell run it if it is one text."""
    if isinstance(argv, str):
        words = [SHELL, "-c", argv]
        blank = not argv.strip()
    else:
        words = list(argv)
        blank = not words or words[0] == ""
    if blank:
        raise DefinitionError(f"a command must name a program, got {argv!r}")
    for index, word in enumerate(words):
        _check_text(f"argument {index} of command {_quoted(words)}", word)
    return words


def input_bytes(stdin: str | bytes | None) -> bytes:
    """The bytes for a command's stdin: text as UTF-8, surrogate-escaped bytes restored."""
    if not isinstance(stdin, str):
        return stdin or b""
    try:
        return stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        why = f"{error.reason} at {error.start}"
        raise DefinitionError(f"stdin cannot be encoded: {why}. Pass it as bytes.") from None


def check_environment(env: Mapping[str, str]) -> None:
    """Raise a ``DefinitionError`` that names the first variable that no process can receive."""
    for name, value in env.items():
        _check_text(f"the name of environment variable {name!r}", name)
        if not name or "=" in name:
            raise DefinitionError(
                f"{name!r} cannot name an environment variable: it must be text without '='"
            )
        # The value itself is left out of the message: it may be a secret.
        _check_text(f"the value of environment variable {name!r}", value)


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        hint = "Write str(...) around it."
        raise DefinitionError(f"{what} must be str, got {type(value).__name__}. {hint}")
    if "\0" in value:
        raise DefinitionError(
            f"{what} has a NUL character at {value.index(chr(0))}, which ends a text for the "
            f"operating system. Remove it, or pass the data by stdin= or a file."
        )
    try:
        os.fsencode(value)
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"{what} cannot be encoded: {error.reason} at {error.start}"
        ) from None


def _quoted(words: Sequence[object]) -> str:
    return repr(shortened(" ".join(str(word) for word in words), _SHOWN_CHARS))
