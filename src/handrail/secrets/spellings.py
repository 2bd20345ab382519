"""In which forms the value of a secret may be written, and how a text is searched for them."""

from __future__ import annotations

import html
import json
import re
import shlex
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import pairwise, product
from typing import Any
from urllib.parse import unquote

import msgspec

SHORTEST = 6
"""Shorter values would occur inside ordinary words."""
LONG_LINE = 12
"""Shorter lines of a value of several lines are no secrets of their own."""

_IN_A_LINE = (48, 57)
"""Bytes on a line of base64: 64 characters in PEM, 76 of the command ``base64`` and in e-mails."""
_LINE_END = re.compile(r"(?:\s*(?:\r?\n|\\r\\n|\\n))+\s*")
"""Between the lines of a value; in an environment they are often written as ``\\n``."""
_USER_AND_PASSWORD = re.compile(r"://([^\s:/?#@]*):([^\s/?#@]+)@")


def json_inner(text: str) -> str:
    """``text`` as JSON writes it between the quotes of a string."""
    try:
        return msgspec.json.encode(text).decode()[1:-1]
    except UnicodeEncodeError:  # lone surrogates, from an environment that is not UTF-8
        return text


_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"


def _in_url(text: str, safe: str = _UNRESERVED) -> str:
    characters = (chr(byte) for byte in utf8(text))
    return "".join(c if c in safe else f"%{ord(c):02X}" for c in characters)


def _in_form_encoding(text: str) -> str:
    return _in_url(text, f"{_UNRESERVED} ").replace(" ", "+")


def _in_base64(text: str, before: int, encode: Callable[[bytes], bytes]) -> str:
    return _whole_characters(utf8(text), before, encode)


def _whole_characters(
    data: bytes, before: int, encode: Callable[[bytes], bytes] = b64encode
) -> str:
    """The base64 that is the same whatever stands after the data and, that long, before it."""
    first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
    return encode(b"\0" * before + data).decode()[first:last]


_IN_BASE64 = {
    f"{name} after {before}" if before else name: partial(_in_base64, before=before, encode=encode)
    for name, encode in (("base64url", urlsafe_b64encode), ("base64", b64encode))
    for before in range(3)
}
_IN_HEX: Mapping[str, Callable[[str], str]] = {
    "hex": lambda text: utf8(text).hex(),
    "HEX": lambda text: utf8(text).hex().upper(),
}
_IN_URLS: Mapping[str, Callable[[str], str]] = {
    "form": _in_form_encoding,
    "path": lambda text: _in_url(text, f"{_UNRESERVED}/"),
    "url": _in_url,
    "url in url": lambda text: _in_url(_in_url(text)),
}
_BY_NUMBER = str.maketrans({'"': "&#34;", "'": "&#39;"})
_QUOTED: Mapping[str, Callable[[str], str]] = {
    "html": html.escape,
    "html by number": lambda text: html.escape(text, quote=False).translate(_BY_NUMBER),
    "xml": lambda text: html.escape(text, quote=False),
    "doubled": lambda text: text.replace("'", "''"),
    "shell in shell": lambda text: shlex.quote(f" {shlex.quote(f' {text}')[2:-1]}")[2:-1],
    "backslashed": lambda text: re.sub(r"([^\w@%+=:,./-])", r"\\\1", text),
    "shell by backslash": lambda text: text.replace("'", "'\\''"),
    "shell": lambda text: shlex.quote(f" {text}")[2:-1],
    "bytes quoted": lambda text: repr(utf8(text) + b"\"'")[2:-4],
    "bytes": lambda text: repr(utf8(text) + b"\"'")[2:-4].replace("\\'", "'"),
    "ascii repr": lambda text: ascii(f"{text}\"'")[1:-4].replace("\\'", "'"),
    "repr quoted": lambda text: repr(f"{text}\"'")[1:-4],
    "repr": lambda text: repr(f"{text}\"'")[1:-4].replace("\\'", "'"),
    "ascii": lambda text: json.dumps(text)[1:-1],
    "json": json_inner,
}
_OUTER = ("repr quoted", "repr", "ascii", "json")


def _both(text: str, inner: str, outer: str) -> str:
    return _QUOTED[outer](_QUOTED[inner](text))


SPELLINGS: Mapping[str, Callable[[str], str]] = {
    **_IN_HEX,
    **_IN_BASE64,
    **_IN_URLS,
    **{
        f"{inner} in {outer}": partial(_both, inner=inner, outer=outer)
        for inner in _QUOTED
        for outer in _OUTER
    },
    **_QUOTED,
    "": str,
}
"""How a text may be written, the plainest last: in hex; in base64, at each of the offsets that it
may have; in a form, path or URL; quoted in quotes; in HTML and XML; in SQL and YAML; for a shell;
as Python's ``repr``; in JSON (escaped to ASCII or not); verbatim.

Source: ``urllib.parse.quote_plus``, ``quote``, and ``quote`` with no safe character;
``html.escape`` and ``markupsafe.escape``;
``shlex.quote``, and ``printf %q`` and ``set -x`` of bash.
"""


def parts_of(value: str) -> Iterator[tuple[str, str]]:
    """The parts of a value that are as secret as the whole, each with its name, the whole first.

    Without blanks at its ends, as ``$(command)`` leaves it; each long line; a URL's password.
    """
    yield "", value
    stripped = value.strip()
    if stripped != value:
        yield "stripped", stripped
    for found in _USER_AND_PASSWORD.finditer(value):
        user, password = found.groups()
        if password != user:  # postgres:postgres is in too many texts
            yield "password", password
            yield "password decoded", unquote(password)
            break
    lines = _LINE_END.split(stripped)
    if len(lines) > 1:
        for number, line in enumerate(lines, 1):
            if len(line) >= LONG_LINE and not line.startswith("-----"):
                yield f"line {number}", line


def spellings_of(value: str) -> Iterator[tuple[str, str, str]]:
    """Each text to search for with the names of its part and its spelling, the plainest last."""
    for part, text in reversed(list(parts_of(value))):
        is_encoded = not part.startswith(("line", "stripped"))  # with the whole, they are, too
        for spelling, spell in SPELLINGS.items():
            if is_encoded or not spelling.lower().startswith(("base64", "hex")):
                yield spell(text), part, spelling
    for width, before in product(_IN_A_LINE, range(3)):
        yield from _lines_of_base64(utf8(value), width, before)


def _lines_of_base64(data: bytes, width: int, before: int) -> Iterator[tuple[str, str, str]]:
    """The lines of the data, if it takes several after so many bytes on its first line."""
    starts = [0, *range(width - before, len(data), width)]
    for number, (start, end) in enumerate(pairwise([*starts, len(data)]), 1):
        if len(starts) > 1:
            line = _whole_characters(data[start:end], 0 if start else before)
            yield line, "", f"base64 by {width} after {before} line {number}"


SOON = 4096
"""After this many characters, in however many texts, building a finder in C pays (0.7 ms with its
import). Until then each needle is searched for in Python: 300 characters take 3 µs, with the finder
0.4 µs; a MiB would take 5 ms and more, with the finder 0.05 ms.
"""
TOGETHER = 32
"""How many needles one finder searches for. With twice as many a MiB would take 1.4 ms, because the
processor then advances one byte at a time.
"""


_NEVER = (b"\xff\xfe\x00\xff", b"\xff\xfe\x01\xff")
"""No text has these bytes. With them a finder looks for the beginnings of all its strings at once;
else it may stop at each of the rarest bytes of them, which takes 30 times as long.
"""


class Needles:
    """Strings that are searched for together. Mutable: builds its finders when they are needed.

    ``parts``: each of the strings contains one of these. There are fewer parts than strings, and
    only parts are searched for until there is a finder: for good, without the extra ``fast``.
    """

    __slots__ = ("_finders", "_needles", "_parts", "_unread")

    def __init__(self, texts: Iterable[str], parts: Iterable[str] | None = None) -> None:
        self._needles = tuple(dict.fromkeys(map(_as_bytes, texts)))
        self._parts = (
            self._needles if parts is None else tuple(dict.fromkeys(map(_as_bytes, parts)))
        )
        self._unread = SOON
        self._finders: tuple[Any, ...] | None = None

    def __or__(self, other: Needles) -> Needles:
        """A search for the strings of both."""
        both = Needles(())
        both._needles = (*self._needles, *other._needles)
        both._parts = (*self._parts, *other._parts)
        return both

    def may_occur_in(self, text: str | bytes) -> bool:
        """False if the text, or its bytes, contains none of the strings; fast then. True if it
        contains a string or only a part, or if it has no UTF-8 form (lone surrogates).
        """
        if isinstance(text, str):
            try:
                data = utf8(text)
            except UnicodeEncodeError:
                return True
        else:
            data = text
        finders = self._finders
        if finders is None:
            self._unread -= len(data)
            build = _build_finder() if self._unread <= 0 else None
            if build is None:
                return any(map(data.__contains__, self._parts))
            finders = self._finders = _finders(self._needles, build)
        for find in finders:  # noqa: SIM110  # a generator costs as much as the search
            if find(data):
                return True
        return False


def utf8(text: str) -> bytes:
    """The text as bytes, as the environment has it."""
    return text.encode("utf-8", "surrogateescape")


def _as_bytes(text: str) -> bytes:
    try:
        return utf8(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


@cache
def _build_finder() -> Callable[[list[bytes]], Any] | None:
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind
    except ImportError:  # the extra `fast` has it
        return None
    # Leftmost match: only such a finder scans many bytes at a time.
    return partial(BytesAhoCorasick, matchkind=MatchKind.LeftmostFirst)


def _finders(needles: tuple[bytes, ...], build: Callable[[list[bytes]], Any]) -> tuple[Any, ...]:
    count = -(-len(needles) // TOGETHER)
    slices = [needles[start::count] for start in range(count)]
    return tuple(build([*some, *_NEVER]).find_matches_as_indexes for some in slices)
