"""Which values are secrets, and texts with secrets masked.

There are two kinds: the values of environment variables that ``Secrets`` picks, which have a name
and can be restored, and tokens that are known by their shape alone, which cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

import attrs

from handrail.secrets.spellings import SHORTEST, Needles, json_inner, spellings_of
from handrail.secrets.tokens import TOKENS, may_have_password, without_tokens


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_BESIDE_WORDS = (
    *("PASSWD", "PASSPHRASE", "DATABASE_URL", "CREDENTIALS", "CONNECTION_STRING"),
    *("*_CREDENTIAL", "*_CREDS", "*_PASS", "*_PWD", "*_DSN", "*_PAT"),
)
"""What counts beside the default words, if nobody named others."""


@attrs.frozen
class Secrets:
    """Picks the environment variables with secrets: by name, or by a word in the name.

    A word with a ``*`` is a pattern of the whole name. If there are any words, a variable whose
    value has a token or a URL with a password in it counts, too.
    """

    names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    words: tuple[str, ...] = attrs.field(default=WORDS, converter=_texts)

    def picks(self, name: str, value: str) -> bool:
        """True if the variable's value is a secret."""
        if name in self.names:
            return True
        words = _words(self.words)
        return words is not None and bool(words.search(name.upper()) or _has_token(value))


@lru_cache(maxsize=8)
def _words(words: tuple[str, ...]) -> re.Pattern[str] | None:
    more = _BESIDE_WORDS if words == WORDS else ()
    known = [word.upper() for word in (*words, *more) if word]
    patterns = [rf"\A{translate(one)}" if "*" in one else re.escape(one) for one in known]
    return re.compile("|".join(patterns)) if known else None


@lru_cache(maxsize=1024)
def _has_token(value: str) -> bool:
    return without_tokens(value) != value


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

    A variable counts if ``secrets.picks`` it. A value of less than 6 characters never counts.
    """
    return SecretValues(
        {
            name: environ[name]
            for name in sorted(environ)
            if len(environ[name]) >= SHORTEST and secrets.picks(name, environ[name])
        }
    )


def mask_text(text: str, values: Mapping[str, str]) -> str:
    """``text`` for people: values as ``${THEIR_NAME}``, tokens as their ends: ``ghp_***a1b2``.

    ``values`` are those of ``secret_values``. They are found in each spelling of ``spellings``.
    Masking a masked text changes nothing.
    """
    if values:
        finder = finder_of(values)
        if finder is not None and finder.may_occur_in(text):
            text = finder.pattern_in(text).sub(
                lambda match: placeholder(finder.names[match[0]].name), text
            )
    return without_tokens(text)


def placeholder(name: str) -> str:
    """The text shown in place of a variable's value, if the value is secret or unknown."""
    return f"${{{name}}}"


class Spelling(NamedTuple):
    """Which part of a variable's value a text is, in which spelling: see ``spellings``."""

    name: str
    part: str = ""
    spelling: str = ""


class SecretFinder:
    """Finds the values of some variables in texts, longest first.

    ``names`` maps each text searched for to its variable, and how that has it.
    ``prefix_end_chars`` are the characters with which a proper beginning of such a text may end.
    """

    __slots__ = (
        "_as_it_is",
        "_in_json",
        "_in_json_or_tokens",
        "_longest_first",
        "names",
        "prefix_end_chars",
    )

    def __init__(self, values: Mapping[str, str]) -> None:
        counted = [(name, value) for name, value in values.items() if len(value) >= SHORTEST]
        spelled = [
            (text, Spelling(name, part, spelling))
            for name, value in reversed(counted)
            for text, part, spelling in spellings_of(value)
            if len(text) >= SHORTEST
        ]
        spelled.sort(key=lambda pair: (not pair[1].part, not pair[1].spelling))  # the plainest wins
        self.names = dict(spelled)
        longest_first = sorted(self.names, key=len, reverse=True)
        self._longest_first = longest_first
        self.prefix_end_chars = frozenset("".join(text[:-1] for text in longest_first))
        self._as_it_is = Needles(_fewest(self.names))
        self._in_json = Needles(_fewest(json_inner(text) for text in longest_first))
        self._in_json_or_tokens = self._in_json | TOKENS

    def may_occur_in(self, text: str | bytes) -> bool:
        """True if one of the values may occur in the text, or in the text as bytes."""
        return self._as_it_is.may_occur_in(text)

    def pattern_in(self, text: str) -> re.Pattern[str]:
        """A pattern of those texts that occur in the text: one of all would be slow."""
        return _pattern(tuple(one for one in self._longest_first if one in text))

    def occurs_in_json(self, text: str) -> bool:
        """True if one of the values may occur in a string of the JSON text."""
        return self._in_json.may_occur_in(text)

    def value_or_token_in_json(self, text: str) -> bool:
        """True if one of the values, or a token, may occur in a string of the JSON text."""
        return self._in_json_or_tokens.may_occur_in(text) or may_have_password(text)


def finder_of(values: Mapping[str, str]) -> SecretFinder | None:
    """The finder of these values, or None if all of them are too short to search for."""
    if type(values) is SecretValues:
        return values.finder
    return _finder(tuple(values.items()))


def _fewest(texts: Iterable[str]) -> list[str]:
    """The texts without those that contain another."""
    kept: list[str] = []
    for text in sorted(set(texts), key=len):
        if not any(one in text for one in kept):
            kept.append(text)
    return kept


@lru_cache(maxsize=64)
def _pattern(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


@lru_cache(maxsize=8)
def _finder(values: tuple[tuple[str, str], ...]) -> SecretFinder | None:
    finder = SecretFinder(dict(values))
    return finder if finder.names else None
