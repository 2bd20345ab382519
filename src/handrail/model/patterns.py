r"""Patterns of paths, as in ``.gitignore``: which paths they cover, and whether two lists overlap.

Paths are relative to a repository, with ``/``. In a pattern ``*`` and ``?`` match anything but
``/``, ``**`` any number of folders, ``[a-z]`` one of these characters. These are the signs; ``\``
makes the character after it a plain one. A pattern without ``/``, except at its end, applies in
every folder; a leading ``/`` or ``./`` restricts it to the top folder. A name without signs covers
a file, or a folder with everything below it; with ``/`` at its end it covers only what is below the
folder. The last pattern of a list that covers a path decides; with ``!`` it excludes the path.

*Do two lists overlap?* Each pattern is a small automaton over characters. Two patterns share a path
if the same characters lead both automata to an end, and none of the later patterns with ``!``. The
search moves all of them at once, each as a set of states, and tries one character of each class
that they tell apart. The answer is exact, unless the search takes too long: then the search stops,
and the answer is yes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from handrail.errors import DefinitionError

_SIGNS = re.compile(r"[*?\[]")
_NO_PLAIN_SIGN = re.compile(r"[*?\[\\]")
_MOST_STATES = 5_000
"""How many pairs of states the search for a shared path visits before it gives up."""


def covers(patterns: Sequence[str], path: str, *, folds: bool = False) -> bool:
    """True if the last pattern that covers the path has no ``!``; ``folds``: case is ignored."""
    for pattern in reversed(patterns):
        if compiled(pattern.removeprefix("!"), folds=folds).fullmatch(path):
            return not pattern.startswith("!")
    return False


@lru_cache(maxsize=4096)
def compiled(pattern: str, *, folds: bool = False) -> re.Pattern[str]:
    """An expression for the paths that a pattern without ``!`` covers."""
    parts, below, itself = _split(pattern)
    rest = ("(?:/.+)?" if itself else "/.+") if below else ""
    return re.compile(_joined(parts) + rest, re.DOTALL | (re.IGNORECASE if folds else 0))


def normal(pattern: str) -> str:
    """The pattern without ``.``, ``..`` and empty parts.

    Raises:
        DefinitionError: it leads out of the repository, is empty, has ``..`` after a part with
            signs, or is no text in UTF-8; the text says which.
    """
    if not pattern.isascii() and re.search("[\ud800-\udfff]", pattern):
        raise DefinitionError(
            f"a pattern is text in UTF-8, and {pattern!r} is not. '*' covers such a part of a name."
        )
    sign = "!" if pattern.startswith("!") else ""
    given = pattern.removeprefix("!")
    parts: list[str] = []
    for part in given.split("/"):
        if part == ".." and not (parts and not _SIGNS.search(parts[-1])):
            why = "leads out of it" if not parts else f"goes back from {parts[-1]!r}"
            raise DefinitionError(
                f"a pattern is relative to the repository, such as 'src/**', and {pattern!r} {why}"
            )
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    if not parts:
        raise DefinitionError(
            f"a pattern is relative to the repository, such as 'src/**', and {pattern!r} names "
            f"nothing in it. All of it is '**'."
        )
    anchored = "/" in given.rstrip("/")
    top = "/" if anchored and len(parts) == 1 and parts != ["**"] else ""
    return f"{sign}{top}{'/'.join(parts)}{'/' if given.endswith('/') else ''}"


def literal(path: str) -> str:
    """The pattern that covers this path alone, and nothing below it.

    If the name has no other characters than ``!`` and ``^``, it covers what is below, too.
    """
    folder, slash, name = path.rpartition("/")
    # One character goes into []: a name with a sign is no folder. [!] and [^] would be no class.
    at = max((at for at, sign in enumerate(name) if sign not in "!^"), default=len(name))
    alone = f"[{name[at]}]" if at < len(name) else ""
    return f"{escaped(folder)}{slash or '/'}{escaped(name[:at])}{alone}{escaped(name[at + 1 :])}"


def escaped(text: str) -> str:
    """The text as a pattern in which every character is a plain one."""
    return re.sub(r"([\\*?\[]|^!)", r"\\\1", text)


def display_pattern(pattern: str) -> str:
    """The pattern as people read it: for a pattern that ``literal`` made, the path."""
    path = _only_path(pattern) if "[" in pattern else None
    return pattern if path is None else path


def fixed_part(pattern: str) -> str:
    """The parts of a pattern without ``!`` before its first part with a sign, joined.

    Empty if there are none, or if the pattern applies in every folder.
    """
    parts, _, _ = _split(pattern)
    return "/".join(takewhile(lambda part: not _NO_PLAIN_SIGN.search(part), parts))


# -- a pattern's parts -----------------------------------------------------------------------------


def _split(pattern: str) -> tuple[list[str], bool, bool]:
    """A pattern's parts; whether it covers what is below them; whether it covers them."""
    if pattern.startswith("./"):
        pattern = pattern[1:]
    folder = pattern.endswith("/")
    parts = pattern.rstrip("/").split("/")
    if parts[0] == "" and len(parts) > 1:
        parts = parts[1:]
    elif len(parts) == 1 and parts != ["**"]:
        parts = ["**", *parts]
    plain = not _SIGNS.search(parts[-1])
    return parts, folder or plain, not folder


def _joined(parts: Sequence[str]) -> str:
    """An expression for the parts with ``/`` between; ``**`` is any number of folders."""
    *before, last = parts
    folders = "".join("(?:[^/]+/)*" if part == "**" else f"{_part(part)}/" for part in before)
    return folders + (".+" if last == "**" else _part(last))


def _part(part: str) -> str:
    return "".join("[^/]*" if token == _STAR else token for token in _tokens(part))


_STAR = "*"
_ANY = "[^/]"


def _tokens(part: str) -> Iterator[str]:
    """A part as expressions for one character each, and stars."""
    at = 0
    while at < len(part):
        sign, at = part[at], at + 1
        if sign == "*":
            yield _STAR
        elif sign == "?":
            yield _ANY
        elif sign == "\\" and at < len(part):
            yield re.escape(part[at])
            at += 1
        elif sign == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in "!^"))) > 0:
            yield _class(part[at:end])
            at = end + 1
        else:
            yield re.escape(sign)


def _class(inside: str) -> str:
    """The expression for ``[abc]``, ``[a-z]`` or ``[!abc]``; it never matches a ``/``."""
    negated = inside[:1] in {"!", "^"}
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:])
    return f"(?!/)[{'^' * negated}{members}]"


# -- do two lists overlap? -------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def overlap(one: tuple[str, ...], other: tuple[str, ...], *, folds: bool = False) -> bool:
    """False only if no path can be covered by both lists; see the module's text."""
    for mine, against_me in _inclusions(one):
        path = _only_path(mine)
        if path is not None:
            if covers(other, path, folds=folds) and not _any_covers(against_me, path, folds=folds):
                return True
            continue
        for theirs, against_them in _inclusions(other):
            if _prefixes_differ(mine, theirs, folds=folds):
                continue
            against = (*against_me, *against_them)
            if _paths_overlap((mine, theirs), against, folds=folds):
                return True
    return False


def _inclusions(patterns: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each pattern without ``!``, and the patterns with ``!`` that come after it."""
    for at, pattern in enumerate(patterns):
        if not pattern.startswith("!"):
            later = (one[1:] for one in patterns[at + 1 :] if one.startswith("!"))
            yield pattern, tuple(later)


def _any_covers(patterns: Iterable[str], path: str, *, folds: bool) -> bool:
    return any(compiled(pattern, folds=folds).fullmatch(path) for pattern in patterns)


@lru_cache(maxsize=4096)
def _only_path(pattern: str) -> str | None:
    """The only path that the pattern covers, if ``literal`` could have made it; else None."""
    parts, below, _ = _split(pattern)
    if below or "**" in parts:
        return None
    signs = [_only_sign(token) for part in parts for token in (*_tokens(part), "/")]
    return "".join(map(str, signs[:-1])) if None not in signs else None


def _only_sign(token: str) -> str | None:
    """The only character that an expression matches; None if it matches several."""
    if token == _STAR:
        return None
    token = token.removeprefix("(?!/)[").removesuffix("]") if len(token) > 2 else token
    return token[-1] if len(token.removeprefix("\\")) == 1 else None


def _prefixes_differ(one: str, other: str, *, folds: bool) -> bool:
    """True if the plain beginnings of two patterns differ: no path fits both."""
    first, second = _common_prefix(one), _common_prefix(other)
    if folds:
        first, second = first.lower(), second.lower()
    return not (first.startswith(second) or second.startswith(first))


@lru_cache(maxsize=4096)
def _common_prefix(pattern: str) -> str:
    """The text with which every path begins that the pattern covers."""
    return _NO_PLAIN_SIGN.split("/".join(_split(pattern)[0]), maxsplit=1)[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Automaton:
    """State ``n`` reads a character that fits ``expressions[n]``, and leads to the states
    ``after[n]``; the state behind the last is the end of a path.
    """

    expressions: tuple[str, ...]
    after: tuple[frozenset[int], ...]
    start: frozenset[int]


@lru_cache(maxsize=4096)
def _automaton(pattern: str) -> _Automaton:
    parts, below, itself = _split(pattern)
    # An expression, whether it repeats, and how many tokens from it on may be left out. The search
    # tries no path with an empty part, so ".+/" is any number of folders.
    tokens: list[tuple[str, bool, int]] = []
    for at, part in enumerate(parts):
        last = at + 1 == len(parts)
        if part == "**":
            tokens += [(".", False, 0 if last else 3), (".", True, 0)]
        else:
            tokens += [
                (_ANY, True, 0) if token == _STAR else (token, False, 0) for token in _tokens(part)
            ]
        tokens += [] if last else [("/", False, 0)]
    if below:
        tokens += [("/", False, 3 if itself else 0), (".", False, 0), (".", True, 0)]
    reached = [
        frozenset({len(tokens)})
    ]  # by no character: from the end, and from each state before
    after: list[frozenset[int]] = []
    for state in reversed(range(len(tokens))):
        _, repeats, left_out = tokens[state]
        further = {1} if repeats else {left_out} - {0}
        here = frozenset({state}).union(*(reached[-one] for one in further))
        after.append(here if repeats else reached[-1])
        reached.append(here)
    return _Automaton(tuple(one for one, _, _ in tokens), tuple(reversed(after)), reached[-1])


_Place = tuple[frozenset[int], ...]


def _paths_overlap(both: tuple[str, str], against: tuple[str, ...], *, folds: bool) -> bool:
    """True if a path fits ``both`` and none of ``against``, or if the search takes too long."""
    machines = [_automaton(pattern) for pattern in (*both, *against)]
    waiting = deque[tuple[str, _Place]]([("/", tuple(machine.start for machine in machines))])
    seen = set(waiting)
    while waiting:
        before, place = waiting.popleft()
        for sign in _signs(machines, place, folds=folds):
            following = tuple(
                _moved(machine, states, sign, folds)
                for machine, states in zip(machines, place, strict=True)
            )
            reached = ("/" if sign == "/" else "", following)
            if not (following[0] and following[1]) or before == sign or reached in seen:
                continue
            if sign != "/" and _is_end(machines, following):
                return True
            if len(seen) >= _MOST_STATES:
                return True
            seen.add(reached)
            waiting.append(reached)
    return False


def _is_end(machines: Sequence[_Automaton], place: _Place) -> bool:
    at_end = [
        len(machine.expressions) in states for machine, states in zip(machines, place, strict=True)
    ]
    return at_end[0] and at_end[1] and not any(at_end[2:])


@lru_cache(maxsize=1 << 16)
def _moved(machine: _Automaton, states: frozenset[int], sign: str, folds: bool) -> frozenset[int]:  # noqa: FBT001  # a part of the key
    flags = re.DOTALL | (re.IGNORECASE if folds else 0)
    moved = (
        machine.after[one]
        for one in states
        if one < len(machine.after) and re.fullmatch(machine.expressions[one], sign, flags)
    )
    return frozenset[int]().union(*moved)


def _signs(machines: Sequence[_Automaton], place: _Place, *, folds: bool) -> tuple[str, ...]:
    """One character of each class that the expressions at this place tell apart."""
    named = {
        sign
        for machine, states in zip(machines, place, strict=True)
        for one in states
        for sign in "".join(machine.expressions[one : one + 1])
    }
    if folds:
        named |= {sign for one in named for sign in (*one.lower(), *one.upper())}
    edges = {ord(sign) for sign in named} | {ord(sign) + 1 for sign in named}
    return tuple(chr(code) for code in sorted({1, ord("/"), *edges}) if code < 0x110000)
