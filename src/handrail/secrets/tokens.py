"""Secrets that are known by their shape alone: tokens of services, passwords in URLs, private keys.

Sources: the documented formats of OpenAI, Anthropic, GitHub, GitLab, Slack, AWS, Google, Stripe,
npm, PyPI, Hugging Face, SendGrid, DigitalOcean, Docker, Azure; RFC 7519 for JWTs, whose header and
payload are JSON objects, so begin with ``{"``; RFC 3986 for URLs; RFC 7468 for keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import attrs

from handrail.secrets.spellings import Needles

_COLOURS = (r"\x1b\[", r"[\[;][0-9]", r"[\[;][0-9]{2}", r"[\[;][0-9]{3}")


def _at_word_start(start: str, rest: str) -> str:
    """A pattern for a token at the start of a word, or after a terminal colour (``ESC[1;32m``).

    ``task-`` ends in ``sk-``, and base64 text may contain any four characters. The condition comes
    after ``start``, because searching for a fixed text first is much faster.
    """
    colours = "".join(rf"|(?<={before}m{start})" for before in _COLOURS)
    return rf"{start}(?:(?<![A-Za-z0-9_-]{start}){colours}){rest}"


@attrs.frozen
class _Shape:
    """A kind of token: ``part``, a text that all have, and a pattern of such a token.

    ``in_json`` is searched for in JSON text, so it looks back no further than it must, and matches
    no character that JSON escapes. Every repetition that may fail is bounded or possessive: these
    patterns run over text of unknown origin. ``starts`` are the beginnings of the word that it is,
    and ``needles`` the texts of which each has one.
    """

    part: str
    pattern: str
    starts: tuple[str, ...] = ()
    needles: tuple[str, ...] = ()
    in_json: str = attrs.field()
    inside: bool = True
    """A beginning of its beginning that ends a word may become one."""
    shown: str = ""
    """What is shown, as a template of ``re``; else the first and last 4 characters."""
    lead: str = ""
    """Its beginning, if it is no word; ``more`` is a pattern of what may follow that."""
    more: str = ""

    @in_json.default
    def _same(self) -> str:
        return self.pattern


def _anywhere(start: str, rest: str) -> _Shape:
    """A token whose beginning no word has."""
    return _Shape(start, f"{start}{rest}", (start,), (start,))


def _word(
    start: str, rest: str, *starts: str, needles: tuple[str, ...] = (), inside: bool = False
) -> _Shape:
    """A token whose beginning counts at the start of a word alone."""
    starts = starts or (start,)
    pattern, needles = _at_word_start(start, rest), needles or starts
    return _Shape(needles[0], pattern, starts, needles, f"{start}{rest}", inside)


def _prefixed(part: str, pattern: str, *starts: str, in_json: str | None = None) -> _Shape:
    """A token that has one of several beginnings."""
    return _Shape(part, pattern, starts, starts, in_json or pattern)


_JWT_PART = "[A-Za-z0-9_-]{8,}+"
_JWT_REST = rf"{_JWT_PART}\.{_JWT_PART}"
_LETTERS = r"[A-Za-z0-9_-]"
_IN_URL = r"[^\s/?#@\"'\\<>{}\x00-\x20]"
_USER = _IN_URL.replace("[^", "[^:")
_LINE_END = r"(?:\s|\\+[nr])*+"
_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_HEADERS = r"(?:[A-Z][A-Za-z-]{2,30}: [\w ,./:+-]{0,200}(?:\s|\\+[nr])++){0,8}"
_BODY = rf"(?:{_LINE_END}[A-Za-z0-9+/=]{{16,}}+)"
_END = rf"{_LINE_END}(?:[A-Za-z0-9+/=]{{1,15}}+{_LINE_END})?-----END {_LABEL}"
_PEM = rf"(-----BEGIN {_LABEL}){_LINE_END}{_HEADERS}(?:{_BODY}++(?:{_END})?|{_END})"

SHAPES = (
    _word("sk-", r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}", inside=True),
    _prefixed("gh", r"gh[pousr]_[A-Za-z0-9]{36,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _anywhere("github_pat_", r"[A-Za-z0-9_]{22,}"),
    _anywhere("glpat-", r"[A-Za-z0-9_-]{20,}"),
    _word("xox", r"[abeoprs]-(?=[A-Za-z-]{0,60}[0-9])[A-Za-z0-9-]{10,}", inside=True),
    _prefixed(
        "IA",
        _at_word_start("A[KS]IA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
        "AKIA",
        "ASIA",
        in_json="IA(?<=A[KS]IA)[A-Z0-9]{16}",
    ),
    _word("AIza", rf"{_LETTERS}{{35}}", inside=True),
    _Shape(
        ".eyJ",
        _at_word_start("eyJ", rf"{_LETTERS}{{8,2000}}+\.eyJ{_JWT_REST}"),
        ("eyJ",),
        (".eyJ",),
        rf"\.eyJ{_JWT_REST}",
    ),
    _word("xapp-", r"[0-9]-[A-Za-z0-9-]{20,}"),
    _word("GOCSPX-", rf"{_LETTERS}{{20,}}"),
    _word(r"ya29\.", rf"[A-Za-z0-9_.-]{{20,}}{_LETTERS}", "ya29."),
    _word(r"[sr]k_live_", r"[A-Za-z0-9]{16,}", "sk_live_", "rk_live_", needles=("k_live_",)),
    _word(r"[sr]k_test_", r"[A-Za-z0-9]{16,}", "sk_test_", "rk_test_", needles=("k_test_",)),
    _word("whsec_", r"[A-Za-z0-9+/=]{24,}"),
    _word("npm_", r"[A-Za-z0-9]{36,}"),
    _word("pypi-AgE", rf"{_LETTERS}{{40,}}"),
    _word("hf_", r"[A-Za-z0-9]{30,}"),
    _word(r"SG\.", rf"{_LETTERS}{{16,32}}\.{_LETTERS}{{32,64}}", "SG."),
    _word("do[opr]_v1_", "[a-f0-9]{64}", "doo_v1_", "dop_v1_", "dor_v1_", needles=("_v1_",)),
    _word("dckr_", r"[op]at_[A-Za-z0-9_-]{20,}"),
    _Shape(
        "AccountKey=",
        r"(AccountKey=)[A-Za-z0-9+/]{40,}={0,2}",
        needles=("AccountKey=",),
        shown=r"\1***",
        lead="AccountKey=",
        more=r"[A-Za-z0-9+/=]{0,8192}",
    ),
    _Shape(
        "://",
        rf"(://{_USER}{{0,64}}:)(?![$*<\[]|%[s(]){_IN_URL}{{1,256}}@",
        shown=r"\1***@",
        lead="://",
        more=rf"{_IN_URL}{{0,330}}",
    ),
    _Shape(
        "PRIVATE KEY",
        _PEM,
        needles=("PRIVATE KEY",),
        shown=r"\1***",
        lead="-----BEGIN ",
        more=rf"(?!{_LABEL}(?s:.)*-----END {_LABEL})[\w+/=\s\\:,.-]{{0,32000}}",
    ),
)

SHORTEST_TOKEN = 8
TOKENS = Needles(
    (needle for shape in SHAPES for needle in shape.needles), (shape.part for shape in SHAPES)
)
"""Texts of which every token contains one, but a URL's password: URLs are in too many texts."""
_compiled = cache(re.compile)  # on first use: most texts need none of them


def may_have_password(text: str | bytes) -> bool:
    """True if the text has a URL, and the sign that ends a password in one."""
    if isinstance(text, bytes):
        return b"@" in text and b"://" in text
    return "@" in text and "://" in text


def may_contain_token(text: str | bytes) -> bool:
    """True if a token may occur in a text, or in JSON text; fast if there is none."""
    if not _may_occur_in(text):
        return False
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return any(one.part in text and _compiled(one.in_json).search(text) for one in SHAPES)


def _may_occur_in(text: str | bytes) -> bool:
    return len(text) >= SHORTEST_TOKEN and (TOKENS.may_occur_in(text) or may_have_password(text))


def without_tokens(text: str) -> str:
    """``text`` with each known token cut to its first and last 4 characters: ``ghp_***a1b2``."""
    if not _may_occur_in(text):
        return text
    shown = text
    for one in SHAPES:
        if one.part in shown:
            shown = _compiled(one.pattern).sub(one.shown or _cut_token, shown)
    # Repeat: of two tokens without a gap, the first match took a bit of the second.
    return shown if shown == text else without_tokens(shown)


def _cut_token(match: re.Match[str]) -> str:
    token = match[0]
    return f"{token[:4]}***{token[-4:]}"


# -- streamed texts --------------------------------------------------------------------------------

LONGEST_TOKEN = 8_192
"""Longer words are shown without waiting for their end: they are base64 or the like."""

_STARTS = tuple(start for one in SHAPES for start in one.starts)


def _beginnings(shapes: Iterable[_Shape]) -> tuple[str, ...]:
    starts = [start for shape in shapes for start in shape.starts]
    return tuple({start[:end] for start in starts for end in range(1, len(start))})


_PARTS_OF_STARTS = _beginnings(one for one in SHAPES if one.inside)
_PARTS_AT_WORD_START = frozenset(_beginnings(SHAPES))
_WORD_END = re.compile(r"[^A-Za-z0-9_-]")
_COLOUR = re.compile(r"\A[0-9]{0,3}m")
# A token consists of these, and so does a terminal's colour code that may precede it.
OF_TOKENS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.;[\x1b"
_NO_WORDS = tuple(one for one in SHAPES if one.lead)


def unfinished_start(text: str) -> int:
    """Start of what ends the text and may yet become a token; else the text's end."""
    here = len(text.rstrip(OF_TOKENS))
    word = text[here:]
    may_be = word and len(word) <= LONGEST_TOKEN
    may_be = may_be and (word.endswith(_PARTS_OF_STARTS) or _begins(word) or _has_start(word))
    return min([here if may_be else len(text), *(_open_start(one, text) for one in _NO_WORDS)])


def _begins(word: str) -> bool:
    """True if a beginning stands at the word's start, or after a colour, and ends it."""
    last = _WORD_END.split(word)[-1]
    return last in _PARTS_AT_WORD_START or _COLOUR.sub("", last) in _PARTS_AT_WORD_START


def _open_start(shape: _Shape, text: str) -> int:
    lead = shape.lead
    here = text.rfind(lead)
    if here >= 0 and _compiled(shape.more).fullmatch(text, here + len(lead)):
        return here
    ends = (end for end in range(len(lead) - 1, 0, -1) if text.endswith(lead[:end]))
    return len(text) - next(ends, 0)


def before_token(text: str, end: int) -> int:
    """``end``, or the start of a token, or of a word that may be one, that crosses it."""
    if end == len(text):
        return end
    for one in _NO_WORDS:
        if one.part in text:
            across = _compiled(one.pattern).finditer(text)
            end = next((m.start() for m in across if m.start() < end < m.end()), end)
    here = len(text[:end].rstrip(OF_TOKENS))
    word = text[here : len(text) - len(text[end:].lstrip(OF_TOKENS))]
    return here if len(word) <= LONGEST_TOKEN and _has_start(word) else end


def _has_start(word: str) -> bool:
    return any(start in word for start in _STARTS)
