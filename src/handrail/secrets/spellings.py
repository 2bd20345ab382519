"""In which forms the value of a secret may be written: one table of parts, one of spellings."""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from urllib.parse import unquote

import msgspec

from handrail.secrets.needles import utf8

SHORTEST = 6
"""Shorter values would occur inside ordinary words."""
LONG_LINE = 12
"""Shorter lines of a value of several lines are no secrets of their own."""

_IN_A_LINE = 57
"""Bytes on a line of base64, as the command ``base64`` and e-mails have it."""
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


def _in_base64(text: str, before: int, encode: Callable[[bytes], bytes] = b64encode) -> str:
    """The characters that are the same whatever stands before and after the text."""
    data = utf8(text)
    first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
    return encode(b"\0" * before + data).decode()[first:last]


_IN_BASE64 = {
    f"{name} after {before}" if before else name: partial(_in_base64, before=before, encode=encode)
    for name, encode in (("base64url", urlsafe_b64encode), ("base64", b64encode))
    for before in range(3)
}
_IN_URLS: Mapping[str, Callable[[str], str]] = {
    "form": _in_form_encoding,
    "path": lambda text: _in_url(text, f"{_UNRESERVED}/"),
    "url": _in_url,
}
_QUOTED: Mapping[str, Callable[[str], str]] = {
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
"""How a text may be written, the plainest last: in base64, at each of the offsets that it may have;
in a form, path or URL; quoted in quotes; for a shell; as Python's ``repr``; in JSON (escaped to
ASCII or not); verbatim.

Source: ``urllib.parse.quote_plus``, ``quote``, and ``quote`` with no safe character;
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
        in_base64 = not part.startswith(("line", "stripped"))  # the whole in base64 has them
        for spelling, spell in SPELLINGS.items():
            if in_base64 or not spelling.startswith("base64"):
                yield spell(text), part, spelling
    data = utf8(value)
    if len(data) > _IN_A_LINE:
        for number, start in enumerate(range(0, len(data), _IN_A_LINE), 1):
            yield b64encode(data[start : start + _IN_A_LINE]).decode(), "", f"base64 line {number}"
