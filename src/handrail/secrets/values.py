"""Secrets: which values are one, and what a text looks like without them.

Two kinds are known: the values of environment variables that ``Secrets`` picks, which have a name
and can be put back, and tokens that are known by their shape alone, which cannot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache

import attrs
import msgspec

from handrail.secrets.needles import Needles, utf8


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


@attrs.frozen
class Secrets:
    """Which environment variables hold secrets: those named, and those with a word in the name."""

    names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    words: tuple[str, ...] = attrs.field(
        default=("KEY", "TOKEN", "SECRET", "PASSWORD"), converter=_texts
    )


# Shorter values would be found inside ordinary words.
SHORTEST = 6

_JWT_PART = "[A-Za-z0-9_-]{8,}+"


def _at_word_start(start: str, rest: str) -> str:
    """A pattern that begins a word, or follows a terminal's colour (``ESC[1;32m``).

    ``task-`` ends in ``sk-``, and base64 text may hold any four characters. The condition comes
    after the start, because to search for a fixed text is much faster.
    """
    colours = "".join(rf"|(?<={before}m{start})" for before in _COLOURS)
    return rf"{start}(?:(?<![A-Za-z0-9_-]{start}){colours}){rest}"


_COLOURS = (r"\x1b\[", r"[\[;][0-9]", r"[\[;][0-9]{2}", r"[\[;][0-9]{3}")

# Of each kind of token: a text that each of them has, that text and what follows in any of them,
# and the whole token. The second is looked for in JSON text, so it goes no further back than it
# must, and has no character that JSON escapes. Every repetition that may fail is bounded or
# possessive: these patterns run over texts that others have made.
# Sources: the documented formats of OpenAI and Anthropic (`sk-`), GitHub, GitLab, Slack, AWS and
# Google keys; RFC 7519 for JWTs, whose header and payload are JSON objects, so begin with `{"`.
_SK = r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}"
_SLACK = r"[abeoprs]-(?=[A-Za-z-]{0,60}[0-9])[A-Za-z0-9-]{10,}"
_GOOGLE = r"[A-Za-z0-9_-]{35}"
_JWT_REST = rf"{_JWT_PART}\.{_JWT_PART}"
_SHAPES = (
    ("sk-", f"sk-{_SK}", _at_word_start("sk-", _SK)),
    ("gh", *[r"gh[pousr]_[A-Za-z0-9]{36,}"] * 2),
    ("github_pat_", *[r"github_pat_[A-Za-z0-9_]{22,}"] * 2),
    ("glpat-", *[r"glpat-[A-Za-z0-9_-]{20,}"] * 2),
    ("xox", f"xox{_SLACK}", _at_word_start("xox", _SLACK)),
    (
        "IA",
        "IA(?<=A[KS]IA)[A-Z0-9]{16}",
        _at_word_start("A[KS]IA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ),
    ("Iza", f"Iza(?<=AIza){_GOOGLE}", _at_word_start("AIza", _GOOGLE)),
    (
        ".eyJ",
        rf"\.eyJ{_JWT_REST}",
        _at_word_start("eyJ", rf"[A-Za-z0-9_-]{{8,2000}}+\.eyJ{_JWT_REST}"),
    ),
)
_SHORTEST_TOKEN = 15
_TOKENS = Needles(
    (
        *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
        *("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"),
        *("AKIA", "ASIA", "AIza", ".eyJ"),
    ),
    (text for text, _, _ in _SHAPES),
)
"""What each token has in it."""
_compiled = cache(re.compile)  # on first use: most texts need none of them


class SecretValues(dict[str, str]):
    """Values by the name of their variable, and how they are found; not to be changed.

    ``missing`` are variables whose values were wanted and that are not among these: it grows while
    records are read.
    """

    __slots__ = ("finder", "missing")

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.finder = _finder(tuple(values.items()))
        self.missing: set[str] = set()

    def __repr__(self) -> str:
        return f"<values of {', '.join(self) or 'no variables'}>"  # tracebacks and logs show it


def secret_values(secrets: Secrets, environ: Mapping[str, str]) -> SecretValues:
    """The values to keep secret, by the name of their variable, sorted by name.

    A variable counts if ``secrets`` names it, or if its name contains one of the words, in either
    case; a value of less than 6 characters never does.
    """
    words = [word.upper() for word in secrets.words if word]
    return SecretValues(
        {
            name: environ[name]
            for name in sorted(environ)
            if len(environ[name]) >= SHORTEST
            and (name in secrets.names or any(word in name.upper() for word in words))
        }
    )


def mask_text(text: str, values: Mapping[str, str]) -> str:
    """``text`` for people: values as ``${THEIR_NAME}``, tokens as their ends: ``ghp_***a1b2``.

    ``values`` are those of ``secret_values``; they are found as they are, and as JSON and URLs
    write them. Masking a second time changes nothing.
    """
    if values:
        finder = finder_of(values)
        if finder is not None and finder.may_occur_in(text):
            text = finder.pattern.sub(lambda match: placeholder(finder.names[match[0]][0]), text)
    return without_tokens(text)


def placeholder(name: str) -> str:
    """What stands for the value of a variable where it may not be shown, or is not known."""
    return f"${{{name}}}"


def may_hold_token(text: str | bytes) -> bool:
    """True if a token may be in a text, or in the JSON text of one; quick where there is none."""
    if len(text) < _SHORTEST_TOKEN or not _TOKENS.may_occur_in(text):
        return False
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return any(part in text and _compiled(in_json).search(text) for part, in_json, _ in _SHAPES)


def without_tokens(text: str) -> str:
    """``text`` with each known token cut to its first and last 4 characters: ``ghp_***a1b2``."""
    if len(text) < _SHORTEST_TOKEN or not _TOKENS.may_occur_in(text):
        return text
    shown = text
    for part, _, token in _SHAPES:
        if part in shown:
            shown = _compiled(token).sub(_cut_token, shown)
    # Once more: of two without a gap, the pattern of the first took a bit of both.
    return shown if shown == text else without_tokens(shown)


def _cut_token(match: re.Match[str]) -> str:
    token = match[0]
    return f"{token[:4]}***{token[-4:]}"


class SecretFinder:
    """Where the values of some variables occur in texts, longest first.

    ``names`` says of each text that is looked for which variable it is, and how its value is
    spelled there: a key of ``SPELLINGS``. ``inside`` are the characters with which a beginning of
    one of the texts may end.
    """

    __slots__ = ("_as_it_is", "_in_json", "_in_json_or_tokens", "inside", "names", "pattern")

    def __init__(self, values: Mapping[str, str]) -> None:
        counted = [(name, value) for name, value in values.items() if len(value) >= SHORTEST]
        self.names = {
            spell(value): (name, spelling)
            for spelling, spell in SPELLINGS.items()
            for name, value in reversed(counted)
        }
        longest_first = sorted(self.names, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first)))
        self.inside = frozenset("".join(text[:-1] for text in longest_first))
        self._as_it_is = Needles(self.names)
        self._in_json = Needles(json_inner(text) for text in longest_first)
        self._in_json_or_tokens = self._in_json | _TOKENS

    def may_occur_in(self, text: str | bytes) -> bool:
        """True if one of the values may occur in the text, or in the text in bytes."""
        return self._as_it_is.may_occur_in(text)

    def occurs_in_json(self, text: str) -> bool:
        """True if one of the values may occur in a string of the JSON text."""
        return self._in_json.may_occur_in(text)

    def or_token_in_json(self, text: str) -> bool:
        """The same, or a token may."""
        return self._in_json_or_tokens.may_occur_in(text)


def finder_of(values: Mapping[str, str]) -> SecretFinder | None:
    """The finder of these values, or None if none of them is long enough to be looked for."""
    if type(values) is SecretValues:
        return values.finder
    return _finder(tuple(values.items()))


@lru_cache(maxsize=8)
def _finder(values: tuple[tuple[str, str], ...]) -> SecretFinder | None:
    finder = SecretFinder(dict(values))
    return finder if finder.names else None


def json_inner(text: str) -> str:
    """``text`` as JSON writes it between the quotes of a string."""
    try:
        return msgspec.json.encode(text).decode()[1:-1]
    except UnicodeEncodeError:  # lone surrogates, from an environment that is not UTF-8
        return text


def _in_url(text: str, safe: str) -> str:
    characters = (chr(byte) for byte in utf8(text))
    return "".join(c if c in safe else f"%{ord(c):02X}" for c in characters)


def _in_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def _in_form_encoding(text: str) -> str:
    return _in_url(text, f"{_UNRESERVED} ").replace(" ", "+")


_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"

SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "form": _in_form_encoding,
    "path": lambda text: _in_url(text, f"{_UNRESERVED}/"),
    "url": lambda text: _in_url(text, _UNRESERVED),
    "ascii in json": lambda text: json_inner(_in_ascii(text)),
    "json in json": lambda text: json_inner(json_inner(text)),
    "ascii": _in_ascii,
    "json": json_inner,
    "": str,
}
"""How a value may be written, the plainest last: in a form or a URL, in JSON (with other characters
than those of ASCII, or without; perhaps in a text that is in JSON itself), or as it is.

Source: ``urllib.parse.quote_plus``, ``quote``, and ``quote`` with nothing that is safe.
"""
