"""Exceptions as recorded facts: text, type name, names of bases, traceback text."""

from __future__ import annotations

import os
import re
import traceback
import warnings
from collections.abc import Generator
from contextlib import suppress
from pathlib import PurePath
from types import CodeType, FrameType, TracebackType
from typing import Any

from handrail.model.outcome import members_of
from handrail.model.results import qualified

_OWN = str(PurePath(__file__).parent.parent)
_STANDARD = f"{PurePath(os.__file__).parent}{os.sep}"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_TRACEBACK_LIMIT = 50
_CARRIERS = tuple(
    f"{sep}{name}{sep}" for sep in ("/", "\\") for name in ("anyio", "trio", "asyncio")
)


def text_of(error: BaseException) -> str:
    """An exception's text; its type's name if it has none, or a note if it cannot be rendered."""
    try:
        said = str(error)
    except Exception as broken:  # noqa: BLE001  # a user's __str__ may do anything
        said = f"(its text could not be rendered: {type(broken).__name__})"
    name = type(error).__name__
    return f"{name}: {said}" if isinstance(error, KeyError) else said or name  # its text is a key


def with_type(text: str, name: str) -> str:
    """An error's text behind the name of its type, unless it begins with that."""
    return text if text == name or text.startswith(f"{name}: ") else f"{name}: {text}"


def facts_of_error(error: BaseException) -> tuple[str, str, tuple[str, ...], str]:
    """Text, type, base types and traceback of an exception, as they are recorded. Of a group the
    first member's, as of handrail's own groups; the group's types are among the bases.
    """
    members = members_of(error)
    if members == [error]:
        return text_of(error), qualified(type(error)), bases_of(error), traceback_of(error)
    first, more = members[0], len(members) - 1
    text = text_of(first) + (f" (and {more} more: {text_of(error)})" if more else "")
    bases = dict.fromkeys((*bases_of(first), qualified(type(error)), *bases_of(error)))
    return text, qualified(type(first)), tuple(bases), traceback_of(error)


def bases_of(error: BaseException) -> tuple[str, ...]:
    """The full names of an exception's base classes, nearest first, without ``object``."""
    return tuple(qualified(cls) for cls in type(error).__mro__[1:-1])


def traceback_of(error: BaseException) -> str:
    """The traceback as text, without the outermost frames of handrail and of the event loop."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _machinery(trace.tb_frame.f_code):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace, limit=-_TRACEBACK_LIMIT)
    except Exception:  # noqa: BLE001  # a user's __str__ may do anything
        return f"{type(error).__name__}: {text_of(error)}\n"
    return "".join(lines)


def _machinery(code: CodeType) -> bool:
    """True for code of handrail, or of the libraries whose threads and tasks run its actions."""
    return _own(code) or any(part in code.co_filename for part in _CARRIERS)


def _own(code: CodeType) -> bool:
    return code.co_filename.startswith(_OWN)


def _foreign(path: str) -> bool:
    """True for generated code, the standard library and installed packages."""
    if path.startswith("<"):
        return True
    return path.startswith(_STANDARD) or not _INSTALLED.isdisjoint(PurePath(path).parts)


def line_of(generator: Generator[Any, Any, Any]) -> str:
    """``file:line`` at which a generator is suspended, in the author's code.

    Follows ``yield from`` into helpers, but not into handrail's own generators. For a generator
    that has ended, its first line.
    """
    inner: Any = generator
    while True:
        deeper = getattr(inner, "gi_yieldfrom", None)
        frame = getattr(deeper, "gi_frame", None)
        if frame is None or _own(frame.f_code):
            break
        inner = deeper
    frame = inner.gi_frame
    if frame is None:
        code: CodeType = inner.gi_code
        return f"{code.co_filename}:{code.co_firstlineno}"
    return _position(frame, frame.f_lineno)


def warn_at(text: str, code: CodeType, line: int, scope: dict[str, Any]) -> None:
    """Warn of a place in the author's code, once; ``scope`` has the globals of its module."""
    known = scope.setdefault("__warningregistry__", {})
    with suppress(Warning):  # a filter may make it an error, which would end the run
        warnings.warn_explicit(text, UserWarning, code.co_filename, line, registry=known)


def defined_at(function: object) -> str | None:
    """``file:line`` where a function begins, or None if it is not written in Python."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else None


def raised_at(error: BaseException) -> str | None:
    """``file:line`` of the author's innermost frame in an exception's traceback, or None.

    Generated code (attrs writes some for a class) and installed code are not the author's. If the
    traceback has no other, its outermost frame outside of handrail counts. A generator that lets
    a StopIteration out (``next()`` of an iterator that is empty) has its frames in the cause.
    """
    first: str | None = None
    last: str | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _own(code):
            place = _position(trace.tb_frame, trace.tb_lineno)
            first = first or place
            last = last if _foreign(code.co_filename) else place
        trace = trace.tb_next
    if first is None and isinstance(error.__cause__, StopIteration):
        return raised_at(error.__cause__)
    return last or first


_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)


def raised_in(traceback_text: str | None) -> str:
    """``file:line`` of the author's innermost frame in a recorded traceback, or ""."""
    frames: list[tuple[str, str]] = _FRAME.findall(traceback_text or "")
    own = [(path, line) for path, line in frames if not path.startswith(_OWN)]
    return next((f"{path}:{line}" for path, line in reversed(own) if not _foreign(path)), "")


def _position(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename}:{line}"
