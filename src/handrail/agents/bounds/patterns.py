"""Which paths a step may write: patterns as in ``.gitignore``, but of what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_GIT = ".git"


def allows(patterns: Sequence[str], path: str) -> bool:
    """True if the last of the patterns that covers the path is none with ``!``.

    Paths are relative to the repository, with ``/``. In a pattern ``*`` and ``?`` stand for
    anything but ``/``, ``**`` for any number of folders, ``[a-z]`` for one character of these. One
    without ``/``, except at its end, counts in every folder. A name without such signs covers a
    file, or a folder with all that is below it; with ``/`` at its end only the latter. What is in
    ``.git`` is allowed by patterns alone that begin with it.
    """
    verdict = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        if path.startswith(f"{_GIT}/") and not wanted.startswith(_GIT):
            continue
        if _compiled(wanted).fullmatch(path):
            verdict = wanted is pattern
    return verdict


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The paths that a pattern covers."""
    pattern = pattern.removeprefix("./")
    folder = pattern.endswith("/")
    parts = pattern.rstrip("/").split("/")
    if len(parts) == 1 and parts != ["**"]:
        parts = ["**", *parts]
    plain = not re.search(r"[*?\[]", parts[-1])
    below = "/.+" if folder else "(?:/.+)?" if plain else ""
    return re.compile(_joined(parts) + below, re.DOTALL)


def _joined(parts: Sequence[str]) -> str:
    """The parts with ``/`` between them; ``**`` as a part is any number of them."""
    *before, last = parts
    folders = "".join("(?:[^/]+/)*" if part == "**" else f"{_part(part)}/" for part in before)
    return folders + (".+" if last == "**" else _part(last))


def _part(part: str) -> str:
    found: list[str] = []
    at = 0
    while at < len(part):
        sign, at = part[at], at + 1
        if sign == "*":
            found.append("[^/]*")
        elif sign == "?":
            found.append("[^/]")
        elif sign == "\\" and at < len(part):
            found.append(re.escape(part[at]))
            at += 1
        elif sign == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in "!^"))) > 0:
            found.append(_class(part[at:end]))
            at = end + 1
        else:
            found.append(re.escape(sign))
    return "".join(found)


def _class(inside: str) -> str:
    """``[abc]``, ``[a-z]``, ``[!abc]``; never a ``/``."""
    negated = inside[:1] in {"!", "^"}
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:])
    return f"(?!/)[{'^' * negated}{members}]"
