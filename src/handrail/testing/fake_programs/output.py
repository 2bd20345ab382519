"""Input and output of a fake program, with the faults that its act may set."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

FIRST_OF_MANY = 0xC0
"""A byte from here on begins a character of several bytes."""
MOMENT_S = 0.1


class Signalled(BaseException):
    """A signal came; the program may print something before it ends."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Ended(BaseException):
    """The program ends now, with this exit code, and a last word on stderr if it has one.

    A negative code is a signal.
    """

    def __init__(self, code: int, word: str = "") -> None:
        super().__init__(code, word)
        self.code = code
        self.word = word


class Output:
    """The program's stdout and stderr, with the faults that are set. Mutable."""

    def __init__(self) -> None:
        self.split = False
        self.delay_s = 0.0

    def line(self, event: object) -> None:
        """Print an event as a line of JSON."""
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        self.raw(text.encode() + b"\n")

    def text(self, text: str) -> None:
        """Print a text as it is."""
        self.raw(text.encode())

    def raw(self, data: bytes) -> None:
        """Print bytes, in two parts if that fault is set."""
        if self.delay_s:
            pause(self.delay_s)
        cut = _inside_a_character(data) if self.split else 0
        if cut:
            _write(1, data[:cut])
            pause(0.002)
        _write(1, data[cut:])

    def error(self, text: str) -> None:
        """Print a text on stderr."""
        _write(2, text.encode())


def _inside_a_character(data: bytes) -> int:
    many = next((at for at, byte in enumerate(data) if byte >= FIRST_OF_MANY), None)
    return len(data) // 2 if many is None else many + 1


def _write(stream: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view) :]


def pause(seconds: float) -> None:
    """Do nothing for so long; a signal may raise ``Signalled`` meanwhile."""
    has_input((), seconds)


def has_input(streams: Collection[int], within_s: float = math.inf) -> bool:
    """True as soon as a stream has data or has ended; False if that takes longer than ``within_s``.

    It waits in short pieces, because a signal just before a wait begins does not end the wait.
    """
    until = time.monotonic() + within_s
    while True:
        left = until - time.monotonic()
        if select.select(streams, (), (), max(0.0, min(left, MOMENT_S)))[0]:
            return True
        if left <= MOMENT_S:
            return False


def read_all(stream: int, patience_s: float = math.inf) -> bytes:
    """All data of a stream until its end, or until nothing came for ``patience_s``."""
    parts: list[bytes] = []
    while has_input((stream,), patience_s):
        part = os.read(stream, 65536)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def leave_child(seconds: float, *, holding_stdout: bool) -> int:
    """Start a process in a session of its own, which sleeps for so long; its id.

    It has this process's environment, by which handrail finds such processes.
    """
    child = os.fork()
    if not child:
        _sleep_instead(seconds, holding_stdout=holding_stdout)
    return child


def _sleep_instead(seconds: float, *, holding_stdout: bool) -> NoReturn:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 2) if holding_stdout else (0, 1, 2):
            os.dup2(null, stream)
        os.execvp("sleep", ["sleep", str(seconds)])  # noqa: S606, S607  # the PATH it was given
    finally:
        os._exit(127)


def new_id() -> str:
    """A random UUID; the module for it would take as long to import as all else here."""
    text = f"{int.from_bytes(os.urandom(16), 'big'):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"


def stamp() -> str:
    """The current time as the programs write it."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"


def clock_text(unix_s: float) -> str:
    """A time of day in UTC: ``9:35pm``."""
    at = time.gmtime(unix_s)
    return f"{at.tm_hour % 12 or 12}:{at.tm_min:02}{'am' if at.tm_hour < 12 else 'pm'}"


def totals(usage: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of a usage, with 0 for unknown ones: the real programs know them all."""
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
             "reasoning_tokens")  # fmt: skip
    return {name: usage.get(name) or 0 for name in names}
