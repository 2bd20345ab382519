"""What a program says was refused to it, read from its output: a guess, and told as one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from handrail.shortening import shortened

_WORDS = (
    rb"Read-only file system|Permission denied|Operation not permitted|Invalid cross-device link"
    rb"|Network is unreachable|Name or service not known|Could not resolve host"
    rb"|Temporary failure in name resolution|EROFS|EACCES|EPERM|EAI_AGAIN|ENETUNREACH"
)
_FOUND = re.compile(_WORDS)
_NAMED = re.compile(
    rb"(?P<before>[^\s\"'\\:,;<>|]*/[^\s\"'\\:,;<>|]+)['\"\\\x60\xe2\x80\x99]{0,6}:?\s*\Z"
    rb"|\A[\]):]*:?\s*(?:[a-z]+ )?\\?['\"](?P<after>[^\s\"'\\]*/[^\s\"'\\]+)"
)
_AROUND = 240
_SHOWN = 160
_MOST = 40
"""How many different refusals of one launch are told."""


class Denials:
    """Finds refusals in what a program prints, each once. Mutable."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._kept = b""

    def heard(self, data: bytes) -> Iterator[str]:
        """What was refused, as far as these bytes and those before say so."""
        text = self._kept + data
        self._kept = text[-_AROUND:]
        for found in _FOUND.finditer(text):
            if found.end() <= len(text) - len(data):
                continue
            if (what := _what(text, found)) is not None and self.is_new(what):
                yield what

    def is_new(self, what: str) -> bool:
        """True the first time that it is told, up to a bound."""
        if what in self._told or len(self._told) >= _MOST:
            return False
        self._told.add(what)
        return True


def _what(text: bytes, found: re.Match[bytes]) -> str | None:
    """The path that is named beside the words, or what stands before them in the line."""
    before = text[max(0, found.start() - _AROUND) : found.start()]
    after = text[found.end() : found.end() + _AROUND]
    before = re.split(rb"[\n\r]|\\n", before)[-1]
    for part in (before[-_AROUND:], after):
        named = _NAMED.search(part)
        if named is not None:
            path = named["before"] or named["after"]
            return f"{path.decode('utf-8', 'replace')}: {found[0].decode()}"
    said = before.rpartition(b'"')[2].decode("utf-8", "replace").strip()
    line = shortened(f"{said} {found[0].decode()}".strip(), _SHOWN, keep="tail", mark="")
    return line or None
