"""Finds the answer in what a model wrote: the last JSON value in the text that fits a type.

Theory of operation. One pass over the text finds every array and object that is complete JSON and
no part of a larger one. The pass is a pushdown automaton over JSON tokens. A token that cannot come
next fails all open brackets together, because an automaton that began at an inner bracket would be
in the same state. So nothing is scanned again, and the work is linear however many brackets are
left open. (One exception: if the JSON breaks off after a string with brackets in it, that was
perhaps no string, so its inside is scanned once more. The inside has no quotes, so that happens to
no character twice.)

A complete value inside failed arrays counts by itself. But if an object among the open brackets
already had a key, the text was meant as JSON and is malformed or broke off, and a part of it is not
the answer. The search skips it up to its closing bracket, and keeps its flaw for a re-ask to quote.
Parts of complete values do not count either.

A scalar counts only where it is alone: as the whole text, in a fenced block of its own, on the last
line.

If nothing fits as it stands, two habits of models are forgiven, since asking again is paid for: raw
line ends in strings, and a wrapper around a value that fits: ``[{...}]``, ``{"result": {...}}``, or
the name of its own type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from handrail.shortening import LONGEST_WORD, shortened
from handrail.typed.convert import DoesNotFit, fit, fit_json
from handrail.typed.schema import plain

MAX_TRIED: Final = 5_000


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The answer, and the piece of the text it was read from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing in the text fits; ``reason`` says what was wrong with the last candidate."""

    reason: str


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the text, from ``start`` up to ``end``; ``flaw`` says why it is not JSON."""

    start: int
    end: int
    flaw: str | None = None


def last_fitting(text: str, type_: Any) -> ParsedAnswer | NoAnswer:
    """The last JSON value in ``text`` that is of ``type_``; for ``str`` the text itself, stripped.

    Complete values are tried, fenced or not, from the last to the first, at most 5,000 of them: an
    answer with so many misfits has no fitting one, and each costs up to 0.1 ms. If no JSON fits, a
    type that a bare word can satisfy (an enum, a Literal, a union with str) also takes the whole
    text, or failing that its last line.
    """
    if plain(type_) is str:
        return _fitting_text(text.strip(), type_)
    reason: str | None = None
    spans = candidates(text)[:MAX_TRIED]
    for span in spans:
        source = text[span.start : span.end]
        try:
            if span.flaw is None:
                return ParsedAnswer(fit_json(source, type_), source)
            reason = reason or span.flaw
        except DoesNotFit as misfit:
            reason = reason or str(misfit)
    return (
        _bare_word(text, type_)
        or _forgiven(text, spans, type_)
        or NoAnswer(reason or _no_json(text))
    )


_RAW: Final = json.JSONDecoder(strict=False)
_MOST_FORGIVEN: Final = 20
_WRAPPERS: Final = frozenset(
    {"answer", "data", "final_answer", "json", "output", "response", "result", "structured_output",
     "value"}
)  # fmt: skip
"""Names that say no more of a value than that it is the answer."""


def _forgiven(text: str, spans: list[Span], type_: Any) -> ParsedAnswer | None:
    """The last value that fits once its strings may have raw line ends, and without a wrapper."""
    if not spans and "[" in text:  # a list of such strings is no candidate
        spans = [Span(text.index("["), len(text), "")]
    for span in spans[:_MOST_FORGIVEN]:
        end, source = span.end, text[span.start : span.end]
        if span.flaw is not None:
            try:
                value, end = _RAW.raw_decode(text, span.start)
            except (ValueError, RecursionError):
                continue
            source = json.dumps(value)
        inside = _unwrapped(source, {*_WRAPPERS, getattr(plain(type_), "__name__", "")})
        for inner in islice(inside, span.flaw is None, None):  # not what was tried
            try:
                return ParsedAnswer(fit_json(inner, type_), text[span.start : end])
            except DoesNotFit:
                continue
    return None


def _unwrapped(source: str, wrappers: Collection[str]) -> Iterator[str]:
    """JSON, then what it wraps: the only item of a list, unless a scalar, or the only member of an
    object, if its name is that of a wrapper.
    """
    while True:
        yield source
        is_list = source.startswith("[")
        try:
            kind: Any = list[msgspec.Raw] if is_list else dict[str, msgspec.Raw]
            parts: Any = msgspec.json.decode(source, type=kind)
        except (ValueError, RecursionError):
            return
        if len(parts) != 1:
            return
        name, part = (None, parts[0]) if is_list else next(iter(parts.items()))
        source = bytes(part).decode()
        if source[:1] not in ("{", "[") if is_list else name not in wrappers:
            return


def _fitting_text(text: str, type_: Any) -> ParsedAnswer | NoAnswer:
    try:
        return ParsedAnswer(fit(text, type_), text)
    except DoesNotFit as misfit:
        return NoAnswer(str(misfit))


def _bare_word(text: str, type_: Any) -> ParsedAnswer | None:
    whole, last = text.strip(), _last_line(text)
    for source in dict.fromkeys((whole, whole.strip(_MARKS), last, last.strip(_MARKS))):
        found = _fitting_text(source, type_) if source else None
        if isinstance(found, ParsedAnswer) and isinstance(found.value, (str, Enum)):
            return found
    return None


def _no_json(text: str) -> str:
    return "no JSON value found" if text.strip() else "no JSON value found: the answer is empty"


def candidates(text: str) -> list[Span]:
    """Every span of ``text`` that may be the answer, the last first."""
    spans = {(span.start, span.end): span for span in (*_scalars(text), *structures(text))}
    return sorted(spans.values(), key=lambda span: (-span.end, span.start))


# --- scalars -------------------------------------------------------------------------------------

_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_LITERAL: Final = r"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = re.compile(rf"{_LITERAL}|{_STRING}\"")
_FENCE = re.compile(r"^[ \t>]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$", re.MULTILINE)
_MARKS: Final = "`*"


def _scalars(text: str) -> Iterator[Span]:
    yield from _scalar_at(text, 0, len(text))
    for start, end in _innermost_blocks(text):
        yield from _scalar_at(text, start, end)
    last = _last_line(text)
    if last:
        start = text.rindex(last)
        yield from _scalar_at(text, start, start + len(last))


def _scalar_at(text: str, start: int, end: int) -> Iterator[Span]:
    """The scalar between ``start`` and ``end``, if only marks and blanks surround it there."""
    while start < end and (text[start].isspace() or text[start] in _MARKS):
        start += 1
    while start < end and (text[end - 1].isspace() or text[end - 1] in _MARKS):
        end -= 1
    if start < end and _SCALAR.fullmatch(text, start, end):
        yield Span(start, end)


def _last_line(text: str) -> str:
    stripped = text.rstrip()
    return stripped[stripped.rfind("\n") + 1 :].strip()


def _innermost_blocks(text: str) -> Iterator[tuple[int, int]]:
    """The insides of fenced blocks without a block inside; a block left open ends with the text."""
    opened: list[str] = []
    inside: int | None = None
    for fence in _FENCE.finditer(text):
        if inside is not None:
            yield inside, fence.start()
        mark, info = fence.group(1), fence.group(2)
        closes = not info and bool(opened) and mark.startswith(opened[-1])
        if closes:
            opened.pop()
        else:
            opened.append(mark)
        inside = None if closes else fence.end()
    if inside is not None:
        yield inside, len(text)


# --- arrays and objects --------------------------------------------------------------------------

_State: TypeAlias = Literal[
    "item?", "item", "item-end", "key?", "key", "colon", "value", "value-end", "closed"
]

_START = re.compile(r"[\[{]")
_BRACKET = re.compile(r"[\[\]{}]")
_TOKEN = re.compile(
    rf"""[ \t\r\n]*+(?:(?P<mark>[\[\]{{}},:])|(?P<torn>{_STRING})(?P<string>")?+"""
    rf"|(?P<literal>{_LITERAL}))?+"
)

_VALUES: Final = ("[", "{", "string", "literal")
_ITEM: Final[dict[str, _State]] = dict.fromkeys(_VALUES, "item-end")
_VALUE: Final[dict[str, _State]] = dict.fromkeys(_VALUES, "value-end")

# The state of an array or object after a token. A token that is not listed is malformed there.
_NEXT: Final[dict[_State, dict[str, _State]]] = {
    "item?": {**_ITEM, "]": "closed"},
    "item": _ITEM,
    "item-end": {",": "item", "]": "closed"},
    "key?": {"string": "colon", "}": "closed"},
    "key": {"string": "colon"},
    "colon": {":": "value"},
    "value": _VALUE,
    "value-end": {",": "key", "}": "closed"},
    "closed": {},
}
_WANTED: Final[dict[_State, str]] = {
    "item?": "a value or `]`",
    "item": "a value",
    "item-end": "`,` or `]`",
    "key?": "a key in double quotes or `}`",
    "key": "a key in double quotes",
    "colon": "`:`",
    "value": "a value",
    "value-end": "`,` or `}`",
    "closed": "nothing",
}
_QUOTED = 24
_LOOKED_AT = _QUOTED + LONGEST_WORD + 1
_BETWEEN = "\t\n\v\f\r \"'`{}[],:"


class _Token(NamedTuple):
    """A mark, a "string", a "torn" string without its end, a "literal", or "" for anything else."""

    kind: str
    start: int
    end: int


@dataclass(slots=True)
class _Open:
    """A bracket that is not closed yet; the one mutable thing here."""

    start: int
    state: _State
    complete_before: int
    has_key: bool = False


@dataclass(frozen=True, slots=True)
class _Broken:
    """Where and why the JSON from ``start`` broke off; with a key the text was meant as JSON."""

    start: int
    at: int
    resume: int
    string_at: int | None
    depth: int
    wanted: str
    had_key: bool


def structures(text: str) -> list[Span]:
    """Every array and object that is no part of another, complete or malformed."""
    found: list[Span] = []
    position = 0
    may_skip = True
    while start := _START.search(text, position):
        broken = _scan(text, start.start(), found)
        if isinstance(broken, int):
            position = broken
            continue
        position = _look_on(text, broken)
        if broken.had_key:
            closed = _closing(text, broken) if may_skip else None
            may_skip = may_skip and closed is not None
            position = closed or position
            found.append(Span(broken.start, position, _flaw(text, broken)))
    return found


def _scan(text: str, position: int, found: list[Span]) -> int | _Broken:
    """The end of the structure at ``position``, added to ``found``, or where it broke off.

    Structures inside it are added as they end, and taken out again when the outer one ends.
    """
    token = _Token(text[position], position, position + 1)
    stack = [_open_bracket(token, found)]
    while stack:
        before, token = token, _next_token(text, token.end)
        top = stack[-1]
        after = _NEXT[top.state].get(token.kind)
        if after is None:
            return _broken(stack, found, before, token)
        top.state = after
        top.has_key = top.has_key or token.kind == ":"
        if after == "closed":
            stack.pop()
            del found[top.complete_before :]
            found.append(Span(top.start, token.end))
        elif token.kind in {"[", "{"}:
            stack.append(_open_bracket(token, found))
    return token.end


def _open_bracket(bracket: _Token, found: list[Span]) -> _Open:
    return _Open(bracket.start, "item?" if bracket.kind == "[" else "key?", len(found))


def _next_token(text: str, position: int) -> _Token:
    match = cast("re.Match[str]", _TOKEN.match(text, position))  # it matches the empty text too
    group = match.lastgroup
    if group is None:
        return _Token("", match.end(), match.end())
    if group == "mark":
        return _Token(match["mark"], match.start("mark"), match.end())
    return _Token(group, match.start("torn" if group == "string" else group), match.end())


def _broken(stack: list[_Open], found: list[Span], before: _Token, token: _Token) -> _Broken:
    had_key = any(one.has_key for one in stack)
    if had_key:
        del found[stack[0].complete_before :]
    last = token if token.kind == "torn" else before
    return _Broken(
        start=stack[0].start,
        at=token.start,
        resume=token.end if token.kind == "torn" else token.start,
        string_at=last.start if last.kind in {"torn", "string"} else None,
        depth=len(stack),
        wanted=_WANTED[stack[-1].state],
        had_key=had_key,
    )


def _look_on(text: str, broken: _Broken) -> int:
    """Where the next structure may begin: after the break, or in a string that was perhaps none."""
    if broken.string_at is None or broken.had_key:
        return broken.resume
    bracket = _START.search(text, broken.string_at, broken.resume)
    return bracket.start() if bracket else broken.resume


def _closing(text: str, broken: _Broken) -> int | None:
    """The end of a malformed structure, found by counting brackets, or None if it has none."""
    depth = broken.depth
    for bracket in _BRACKET.finditer(text, broken.resume):
        depth += 1 if bracket.group() in "[{" else -1
        if depth == 0:
            return bracket.end()
    return None


def _flaw(text: str, broken: _Broken) -> str:
    at = _word_start(text, broken)
    before = text[max(broken.start, at - _LOOKED_AT) : at]
    before = shortened(before, _QUOTED, keep="tail", mark="")
    rest = shortened(text[at : at + _LOOKED_AT], _QUOTED, mark="")
    what = f"malformed JSON: {rest!r} follows" if rest else "the JSON breaks off"
    return f"{what} after {before!r}, expected {broken.wanted}"


def _word_start(text: str, broken: _Broken) -> int:
    """Where the JSON broke off, or the start of the word there, so that no half word is quoted."""
    if text[broken.at : broken.at + 1] in _BETWEEN:
        return broken.at
    first = max(broken.start, broken.at - LONGEST_WORD)
    found = max(text.rfind(sign, first, broken.at) for sign in _BETWEEN)
    return broken.at if found < 0 else found + 1
