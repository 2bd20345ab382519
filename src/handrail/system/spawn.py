"""The start of a child process, from values that were checked first."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handrail.errors import DefinitionError, HandrailError
from handrail.shortening import shortened
from handrail.system.refusal import why_not_started

SHELL = "/bin/sh"

_SHOWN_CHARS = 80


def spawn(
    argv: Sequence[str] | str,
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    has_stdin: bool,
) -> subprocess.Popen[bytes]:
    """A running child in a session of its own, its outputs on unbuffered pipes.

    ``env`` is its whole environment. Its stdin is a pipe or ``/dev/null``. Blocks until the program
    was executed, which takes a fraction of a millisecond.

    Raises:
        CommandNotFound: the program or the working directory is not there or not usable.
        CommandNotStarted: the arguments are too long, or the machine has nothing left.
        DefinitionError: an argument or variable is of a kind that no program can be given.
    """
    command = checked(argv, cwd=cwd, env=env, has_stdin=has_stdin)
    try:
        return command.start()
    except OSError as error:
        raise command.refusal(error) from None


def checked(
    argv: Sequence[str] | str,
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    has_stdin: bool,
) -> Command:
    """A command that can be started as far as its words tell; the arguments are ``spawn``'s.

    Raises:
        DefinitionError: an argument or variable is of a kind that no program can be given.
    """
    words = arguments(argv)
    check_environment(env)
    folder = None if cwd is None else os.fspath(cwd)
    if folder is not None:
        _check_text(f"the working directory of command {_shown(words)}", folder)
    return Command(words, folder, env, has_stdin)


@dataclass(frozen=True, slots=True)
class Command:
    """What is to be executed, where, and in which environment."""

    words: Sequence[str]
    folder: str | None
    env: Mapping[str, str]
    has_stdin: bool

    def start(self) -> subprocess.Popen[bytes]:
        """A running child, see ``spawn``.

        Raises:
            OSError: it cannot be started.
        """
        return subprocess.Popen(
            self.words,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.PIPE if self.has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    def refusal(self, error: OSError) -> HandrailError:
        """The error for people in place of the system's."""
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
    """The words to execute: those of ``argv``, or a shell's that runs it if it is one text."""
    if isinstance(argv, str):
        words = [SHELL, "-c", argv]
        blank = not argv.strip()
    else:
        words = list(argv)
        blank = not words or words[0] == ""
    if blank:
        raise DefinitionError(f"a command must name a program, got {argv!r}")
    for index, word in enumerate(words):
        _check_text(f"argument {index} of command {_shown(words)}", word)
    return words


def input_bytes(stdin: str | bytes | None) -> bytes:
    """What a command is to read: text as UTF-8 (undecodable bytes of file names as they were)."""
    if not isinstance(stdin, str):
        return stdin or b""
    try:
        return stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        why = f"{error.reason} at {error.start}"
        raise DefinitionError(f"stdin cannot be encoded: {why}. Pass it as bytes.") from None


def check_environment(env: Mapping[str, str]) -> None:
    """Raise a ``DefinitionError`` that names the first variable that no process can be given."""
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


def _shown(words: Sequence[object]) -> str:
    return repr(shortened(" ".join(str(word) for word in words), _SHOWN_CHARS))
