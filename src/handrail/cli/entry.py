"""``main``: arguments in, exit code out, every error as one line."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from handrail import __version__
from handrail.cli.channels import cleaned_outputs
from handrail.cli.exits import DEBUG, LEFT_AT_ONCE, Exit, debugging, exit_for
from handrail.errors import HandrailError, MissingExtra
from handrail.shortening import without_codes
from handrail.system.threads import any_at_work

_GARBAGE_AFTER = 50_000
"""Objects made before Python looks for garbage: after its 700 it looks a hundred times while the
command starts, for an eighth of that time, and nothing that is imported is garbage.
"""
_METHODS = re.compile(r"\b(complete|fork|resume)\((?:outputs=\.\.\.)?\)")
"""Methods that errors advise to call; the command has commands of the same names."""
_FORK_AT = ("fork(at=...)", "`handrail fork RUN --at STEP`")
"""The same for the method whose argument is an option of the command."""
_UNWRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the system says where an output cannot be written."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments; the exit code.

    No error leaves it: each becomes one line on stderr, with a traceback if ``--debug`` is among
    the arguments or ``HANDRAIL_DEBUG`` is set. Without ``arguments`` it runs those of the process,
    and ends the process if a thread that was left behind would keep it alive.
    """
    if arguments is None:
        gc.set_threshold(_GARBAGE_AFTER)
    _open_what_is_closed()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with cleaned_outputs():
            code = _run(words)
    except BrokenPipeError:
        from handrail.cli.channels import silence

        silence(1)
        code = Exit.READER_GONE
    if arguments is None:
        _end_with(int(code))
    return int(code)


def _run(words: list[str]) -> int:
    try:
        if words == ["--version"]:  # the one answer that needs no command-line library
            print(__version__)
            return Exit.SUCCEEDED
        if "--debug" in words:
            os.environ[DEBUG] = "1"
        if words[:1] == ["run"] and any(word.startswith("--") for word in words[2:]):
            from handrail.cli.named_inputs import with_named_inputs

            words = with_named_inputs(words, _app(words)["run"])
        words = [word for word in words if word != "--debug"]
        code = _guard() if words == ["guard"] else None
        if "--detach" in words:
            code = _run_detached(words)
        if code is None:
            from handrail.cli.channels import log_on_stderr

            log_on_stderr()
            code = _dispatch(_app(words), words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _print_error("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        raise
    except HandrailError as error:
        _print_error(_METHODS.sub(r"`handrail \1`", str(error).replace(*_FORK_AT)))
        return exit_for(error)
    except OSError as error:
        said, code = _refused_by_system(error)
        _print_error(said)
        return code
    except Exception as error:  # noqa: BLE001  # the last place that can report it
        _print_error(_unexpected(error))
        return Exit.FAILED
    return code


def _guard() -> int:
    """The hook, which a program runs at each edit: it needs no command-line library either."""
    from handrail.cli.guard import guard

    return guard()


def _run_detached(words: Sequence[str]) -> int | None:
    """Run the command in a second process, and return its exit code; None in that process."""
    from handrail.cli.detaching import detach, should_detach

    return detach(words) if should_detach(words) else None


def _app(words: Sequence[str]) -> Any:
    """The command-line application, for the words that were typed.

    Raises:
        MissingExtra: cyclopts or rich is not installed.
    """
    from importlib.util import find_spec

    for library in ("cyclopts", "rich"):
        if find_spec(library) is None:
            raise MissingExtra("The command handrail", library, "cli")
    from handrail.cli.app import app_of

    return app_of(words)


def _dispatch(app: Callable[..., Any], words: list[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        command = " ".join(["handrail", *(error.command_chain or ())])
        unused = isinstance(error, UnusedCliTokensError)
        said = _unused_words_text(error.unused_tokens or (), command) if unused else str(error)
        _print_error(f"{_sentence(said)} See {command} --help.")
        return Exit.USAGE
    return code if isinstance(code, int) else Exit.SUCCEEDED


def _unused_words_text(words: Sequence[str], command: str) -> str:
    """The error for words that the command does not take, with what to type instead."""
    said = f"{', '.join(map(repr, words))}: not expected here"
    if command != "handrail run":
        return said
    pairs = [word for word in words if word.partition("=")[1] and word[0] not in "=-"]
    typed = " ".join(f"--input {shlex.quote(word)}" for word in pairs or ["NAME=VALUE"])
    return f"{said}. Inputs are given by name: {typed}"


def _sentence(text: str) -> str:
    flat = " ".join(text.split())
    return flat if flat.endswith((".", "?", "!")) else f"{flat}."


def _refused_by_system(error: OSError) -> tuple[str, Exit]:
    """What the system refused, and the exit code. Without a file's name it is the current folder,
    or an output that was being written.
    """
    if error.filename is None and isinstance(error, FileNotFoundError):
        return "the current folder is gone. cd to one that is there.", Exit.USAGE
    if error.filename is None and error.errno in _UNWRITTEN:
        why = f"the output is incomplete, it could not be written: {error.strerror}."
        return why, Exit.FAILED
    return str(error), Exit.USAGE


def _unexpected(error: Exception) -> str:
    hint = "" if debugging() else " --debug shows where."
    return f"unexpected {type(error).__name__}: {error}.{hint}"


def _print_error(text: str) -> None:
    from handrail.cli.masking import mask_text

    if debugging() and sys.exc_info()[0] is not None:
        sys.stderr.write(mask_text(traceback.format_exc()))
    print(f"handrail: {' '.join(without_codes(mask_text(text)).split())}", file=sys.stderr)


def _open_what_is_closed() -> None:
    """Open the null device in place of a stdin, stdout or stderr that the process started without.

    Otherwise the next file to be opened, the journal for example, would get its descriptor.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            os.set_inheritable(descriptor, True)  # noqa: FBT003  # as the system calls it
            stream = open(descriptor, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    reconfigure = getattr(sys.stdout, "reconfigure", None)  # a test may have put another one there
    if reconfigure is not None and sys.stdout.errors in {"strict", "surrogateescape"}:
        # the name of a file may be no text, and the locale POSIX has ASCII alone
        reconfigure(errors="backslashreplace")


def _end_with(code: int) -> None:
    """Make sure that the process ends soon, and with this code; return if Python's exit will do."""
    if code >= Exit.HUNG_UP:  # it ends because of a signal; another one changes nothing
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
    if _has_stuck_threads() or not LEFT_AT_ONCE.isdisjoint(sys.modules):
        _leave(code)


def _has_stuck_threads() -> bool:
    """True if a sync action that was cancelled or timed out still runs.

    A thread cannot be killed, and Python would wait for it at exit, though the end of its step is
    recorded. Threads that a user's own code started do not count: Python waits for them.
    """
    if any_at_work():
        return True
    return any(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
