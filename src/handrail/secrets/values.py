"""Which values are secrets, and texts with secrets masked.

There are two kinds: the values of environment variables that ``Secrets`` picks, which have a name
and can be restored, and tokens that are known by their shape alone, which cannot.
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
    """Picks the environment variables with secrets: by name, or by a word in the name."""

    names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    words: tuple[str, ...] = attrs.field(
        default=("KEY", "TOKEN", "SECRET", "PASSWORD"), converter=_texts
    )


# Shorter values would occur inside ordinary words.
SHORTEST = 6

_JWT_PART = "[A-Za-z0-9_-]{8,}+"


def _at_word_start(start: str, rest: str) -> str:
    """A pattern for a token at the start of a word, or after a terminal colour (``ESC[1;32m``).

    ``task-`` ends in ``sk-``, and base64 text may contain any four characters. The condition comes
    after ``start``, because searching for a fixed text first is much faster.
    """
    colours = "".join(rf"|(?<={before}m{start})" for before in _COLOURS)
    return rf"{start}(?:(?<![A-Za-z0-9_-]{start}){colours}){rest}"


_COLOURS = (r"\x1b\[", r"[\[;][0-9]", r"[\[;][0-9]{2}", r"[\[;][0-9]{3}")

# For each kind of token: a text that every token of the kind contains; a pattern of that text and
# the token's rest; a pattern of the whole token. The second is searched for in JSON text, so it
# looks back no further than it must, and matches no character that JSON escapes. Every repetition
# that may fail is bounded or possessive: these patterns run over text of unknown origin.
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
"""Texts of which every token contains one."""
_compiled = cache(re.compile)  # on first use: most texts need none of them


class SecretValues(dict[str, str]):
    """Secret values by the name of their variable, with their finder. Do not change the dict.

    ``missing`` are the variables that records refer to and that are not among these; it grows while
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

    A variable counts if ``secrets`` names it, or if its name contains one of the words in any case.
    A value of less than 6 characters never counts.
    """
    words = [word.upper() for word in secrets.words if word]
    return SecretValues(
        {
            name: environ[name]
            for name in sorted(environ)
            if (name in secrets.names or any(map(name.upper().__contains__, words)))
            and len(environ[name]) >= SHORTEST
        }
    )


def mask_text(text: str, values: Mapping[str, str]) -> str:
    """``text`` for people: values as ``${THEIR_NAME}``, tokens as their ends: ``ghp_***a1b2``.

    ``values`` are those of ``secret_values``. They are found in plain spelling, and as JSON and
    URLs write them. Masking a masked text changes nothing.
    """
    if values:
        finder = finder_of(values)
        if finder is not None and finder.may_occur_in(text):
            text = finder.pattern.sub(lambda match: placeholder(finder.names[match[0]][0]), text)
    return without_tokens(text)


def placeholder(name: str) -> str:
    """The text shown in place of a variable's value, if the value is secret or unknown."""
    return f"${{{name}}}"


def may_contain_token(text: str | bytes) -> bool:
    """True if a token may occur in a text, or in JSON text; fast if there is none."""
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
    # Repeat: of two tokens without a gap, the first match took a bit of the second.
    return shown if shown == text else without_tokens(shown)


def _cut_token(match: re.Match[str]) -> str:
    token = match[0]
    return f"{token[:4]}***{token[-4:]}"


class SecretFinder:
    """Finds the values of some variables in texts, longest first.

    ``names`` maps each text searched for to its variable and the value's spelling there, a key of
    ``SPELLINGS``. ``prefix_end_chars`` are the characters with which a proper beginning of such a
    text may end.
    """

    __slots__ = (
        "_as_it_is",
        "_in_json",
        "_in_json_or_tokens",
        "names",
        "pattern",
        "prefix_end_chars",
    )

    def __init__(self, values: Mapping[str, str]) -> None:
        counted = [(name, value) for name, value in values.items() if len(value) >= SHORTEST]
        self.names = {
            spell(value): (name, spelling)
            for spelling, spell in SPELLINGS.items()
            for name, value in reversed(counted)
        }
        longest_first = sorted(self.names, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first)))
        self.prefix_end_chars = frozenset("".join(text[:-1] for text in longest_first))
        self._as_it_is = Needles(self.names)
        self._in_json = Needles(json_inner(text) for text in longest_first)
        self._in_json_or_tokens = self._in_json | _TOKENS

    def may_occur_in(self, text: str | bytes) -> bool:
        """True if one of the values may occur in the text, or in the text as bytes."""
        return self._as_it_is.may_occur_in(text)

    def occurs_in_json(self, text: str) -> bool:
        """True if one of the values may occur in a string of the JSON text."""
        return self._in_json.may_occur_in(text)

    def value_or_token_in_json(self, text: str) -> bool:
        """True if one of the values, or a token, may occur in a string of the JSON text."""
        return self._in_json_or_tokens.may_occur_in(text)


def finder_of(values: Mapping[str, str]) -> SecretFinder | None:
    """The finder of these values, or None if all of them are too short to search for."""
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
"""How a value may be written, the plainest last: in a form, path or URL; in JSON (escaped to ASCII
or not, perhaps JSON within JSON); verbatim.

Source: ``urllib.parse.quote_plus``, ``quote``, and ``quote`` with no safe character.
"""
