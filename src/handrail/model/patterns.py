r"""Patterns of paths, as in ``.gitignore``: what they cover, and whether two lists may meet.

Paths are relative to a repository, with ``/``. In a pattern ``*`` and ``?`` stand for anything but
``/``, ``**`` for any number of folders, ``[a-z]`` for one character of these, and ``\`` takes the
meaning of the sign behind it away. One without ``/``, except at its end, counts in every folder; a
``/`` or ``./`` at its beginning keeps it to the top one. A name without such signs covers a file,
or a folder with all that is below it; with ``/`` at its end only the latter. Of a list the last
pattern that covers a path decides: with ``!`` before it, against it.

*May two lists meet?* Each pattern is a small automaton over characters. Two of them share a path if
both can be walked to their ends on the same characters: the walk is over pairs of their states, and
for characters one of each kind that the patterns tell apart will do. Later patterns with ``!`` are
walked along, as sets of states, since what counts of them is that none has come to its end. That is
exact; only a walk that takes too long is given up, and then the answer is yes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from handrail.errors import DefinitionError

_SIGNS = re.compile(r"[*?\[]")
_MOST_STATES = 5_000
"""So far two lists are walked along."""


def covers(patterns: Sequence[str], path: str, *, folds: bool = False) -> bool:
    """True if the last of the patterns that covers the path is none with ``!``.

    ``folds``: upper and lower case are one.
    """
    for pattern in reversed(patterns):
        if compiled(pattern.removeprefix("!"), folds=folds).fullmatch(path):
            return not pattern.startswith("!")
    return False


@lru_cache(maxsize=4096)
def compiled(pattern: str, *, folds: bool = False) -> re.Pattern[str]:
    """The paths that a pattern without ``!`` covers."""
    parts, below, itself = _split(pattern)
    rest = ("(?:/.+)?" if itself else "/.+") if below else ""
    return re.compile(_joined(parts) + rest, re.DOTALL | (re.IGNORECASE if folds else 0))


def normal(pattern: str) -> str:
    """The pattern without ``.``, ``..`` and empty parts; a part that ``..`` takes back is a name.

    Raises:
        DefinitionError: it leads out of the repository, or is empty; the text says which.
    """
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

    Only of a name that is all ``!`` and ``^`` it covers what is below, too.
    """
    folder, slash, name = path.rpartition("/")
    # A name with a sign in it stands for no folder; "!" and "^" cannot stand in [] alone.
    at = max((at for at, sign in enumerate(name) if sign not in "!^"), default=len(name))
    alone = f"[{name[at]}]" if at < len(name) else ""
    return f"{escaped(folder)}{slash or '/'}{escaped(name[:at])}{alone}{escaped(name[at + 1 :])}"


def escaped(text: str) -> str:
    """The text as a pattern in which no sign has a meaning."""
    return re.sub(r"([\\*?\[]|^!)", r"\\\1", text)


def display_pattern(pattern: str) -> str:
    """The pattern as people read it: one that ``literal`` made is the path."""
    path = _only_path(pattern) if "[" in pattern else None
    return pattern if path is None else path


def fixed_part(pattern: str) -> str:
    """The folders that a pattern without ``!`` names before its first sign; empty if there are
    none, or it counts in every folder.
    """
    parts, _, _ = _split(pattern)
    fixed: list[str] = []
    for part in parts:
        if _SIGNS.search(part) or "\\" in part:
            break
        fixed.append(part)
    return "/".join(fixed)


# -- a pattern's parts -----------------------------------------------------------------------------


def _split(pattern: str) -> tuple[list[str], bool, bool]:
    """The parts; whether what is below them is covered, and whether they themselves are."""
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
    """The parts with ``/`` between them; ``**`` as a part is any number of them."""
    *before, last = parts
    folders = "".join("(?:[^/]+/)*" if part == "**" else f"{_part(part)}/" for part in before)
    return folders + (".+" if last == "**" else _part(last))


def _part(part: str) -> str:
    return "".join("[^/]*" if one == _STAR else one for one in _tokens(part))


_STAR = "*"
_ANY = "[^/]"


def _tokens(part: str) -> Iterator[str]:
    """Each sign of a part as the expression of one character, or a star."""
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
    """``[abc]``, ``[a-z]``, ``[!abc]``; never a ``/``."""
    negated = inside[:1] in {"!", "^"}
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:])
    return f"(?!/)[{'^' * negated}{members}]"


# -- may two lists meet? ---------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def overlap(one: tuple[str, ...], other: tuple[str, ...], *, folds: bool = False) -> bool:
    """False only if no path is covered by both lists; see the module's text."""
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
    """Each pattern that is none with ``!``, and those with one behind it."""
    for at, pattern in enumerate(patterns):
        if not pattern.startswith("!"):
            later = (one[1:] for one in patterns[at + 1 :] if one.startswith("!"))
            yield pattern, tuple(later)


def _any_covers(patterns: Iterable[str], path: str, *, folds: bool) -> bool:
    return any(compiled(pattern, folds=folds).fullmatch(path) for pattern in patterns)


@lru_cache(maxsize=4096)
def _only_path(pattern: str) -> str | None:
    """The path that is all that the pattern covers, if it is one of ``literal``."""
    parts, below, _ = _split(pattern)
    if below or "**" in parts:
        return None
    signs = [_only_sign(token) for part in parts for token in (*_tokens(part), "/")]
    return "".join(map(str, signs[:-1])) if None not in signs else None


def _only_sign(token: str) -> str | None:
    """The character that an expression is of, if it is of one."""
    if token == _STAR:
        return None
    token = token.removeprefix("(?!/)[").removesuffix("]") if len(token) > 2 else token
    return token[-1] if len(token.removeprefix("\\")) == 1 else None


def _prefixes_differ(one: str, other: str, *, folds: bool) -> bool:
    """True if what both begin with differs: nothing more need be looked at."""
    first, second = _common_prefix(one), _common_prefix(other)
    if folds:
        first, second = first.lower(), second.lower()
    return not (first.startswith(second) or second.startswith(first))


@lru_cache(maxsize=4096)
def _common_prefix(pattern: str) -> str:
    """The text that every path begins with which the pattern covers."""
    parts, _, _ = _split(pattern)
    text = ""
    for at, part in enumerate(parts):
        sign = re.search(r"[*?\[\\]", part)
        if sign is not None:
            return text + part[: sign.start()]
        text += part + ("/" if at + 1 < len(parts) else "")
    return text


@dataclass(frozen=True, slots=True, eq=False)
class _Automaton:
    """Where each state leads, by expressions of one character; ``ends`` are where a path ends."""

    moves: tuple[tuple[tuple[str, int], ...], ...]
    ends: frozenset[int]
    start: frozenset[int]


@lru_cache(maxsize=4096)
def _automaton(pattern: str) -> _Automaton:
    parts, below, itself = _split(pattern)
    moves: list[list[tuple[str, int]]] = [[]]
    here = [0]  # the states in which what was read so far may end

    def state() -> int:
        moves.append([])
        return len(moves) - 1

    def step_to(expression: str, target: int) -> None:
        for one in here:
            moves[one].append((expression, target))

    for at, part in enumerate(parts):
        last = at + 1 == len(parts)
        if part == "**":
            inner = state()
            step_to("." if last else _ANY, inner)
            moves[inner].append(("." if last else _ANY, inner))
            if last:
                here = [inner]
            else:
                again = state()
                moves[inner].append(("/", again))
                moves[again].append((_ANY, inner))
                here = [*here, again]
            continue
        for token in _tokens(part):
            if token == _STAR:
                loop = state()
                step_to(_ANY, loop)
                moves[loop].append((_ANY, loop))
                here = [*here, loop]
            else:
                following = state()
                step_to(token, following)
                here = [following]
        if not last:
            following = state()
            step_to("/", following)
            here = [following]
    ends = set(here) if itself else set[int]()
    if below:
        slash, rest = state(), state()
        step_to("/", slash)
        moves[slash].append((".", rest))
        moves[rest].append((".", rest))
        ends.add(rest)
    return _Automaton(tuple(map(tuple, moves)), frozenset(ends), frozenset({0}))


_Place = tuple[frozenset[int], ...]


def _paths_overlap(both: tuple[str, str], against: tuple[str, ...], *, folds: bool) -> bool:
    """True if a path is covered by both, and by none of the others; or if that takes too long."""
    machines = [_automaton(pattern) for pattern in (*both, *against)]
    signs = _signs(machines, folds=folds)
    begin: _Place = tuple(machine.start for machine in machines)
    seen, waiting = {begin}, deque([begin])
    while waiting:
        place = waiting.popleft()
        for sign in _possible(machines, place) or signs:
            following = tuple(
                _moved(machine, states, sign, folds)
                for machine, states in zip(machines, place, strict=True)
            )
            if not (following[0] and following[1]) or following in seen:
                continue
            if _is_end(machines, following):
                return True
            if len(seen) >= _MOST_STATES:
                return True
            seen.add(following)
            waiting.append(following)
    return False


def _possible(machines: Sequence[_Automaton], place: _Place) -> frozenset[str]:
    """The only signs that lead on, where one of the two says which these are; else nothing."""
    named = [_named(machines[at], place[at]) for at in (0, 1)]
    return min(filter(None, named), key=len, default=frozenset[str]())


@lru_cache(maxsize=1 << 14)
def _named(machine: _Automaton, states: frozenset[int]) -> frozenset[str]:
    expressions = {expression for one in states for expression, _ in machine.moves[one]}
    plain = all(len(one.removeprefix("\\")) == 1 and one != "." for one in expressions)
    return frozenset(one[-1] for one in expressions) if plain else frozenset()


def _is_end(machines: Sequence[_Automaton], place: _Place) -> bool:
    at_end = [
        not machine.ends.isdisjoint(states) for machine, states in zip(machines, place, strict=True)
    ]
    return at_end[0] and at_end[1] and not any(at_end[2:])


@lru_cache(maxsize=1 << 16)
def _moved(machine: _Automaton, states: frozenset[int], sign: str, folds: bool) -> frozenset[int]:  # noqa: FBT001  # a part of the key
    return frozenset(
        target
        for one in states
        for expression, target in machine.moves[one]
        if _matches_sign(expression, sign, folds)
    )


@lru_cache(maxsize=1 << 16)
def _matches_sign(expression: str, sign: str, folds: bool) -> bool:  # noqa: FBT001  # a part of the key
    flags = re.DOTALL | (re.IGNORECASE if folds else 0)
    return re.fullmatch(expression, sign, flags) is not None


def _signs(machines: Iterable[_Automaton], *, folds: bool) -> tuple[str, ...]:
    """One character of each kind that the expressions tell apart."""
    named = {
        sign
        for machine in machines
        for moves in machine.moves
        for expression, _ in moves
        for sign in expression
    }
    if folds:
        named |= {sign for one in named for sign in (*one.lower(), *one.upper())}
    edges = {ord(sign) for sign in named} | {ord(sign) + 1 for sign in named}
    return tuple(chr(code) for code in sorted({1, ord("/"), *edges}) if code < 0x110000)
