"""Texts cut to a length without leaving a piece of a word.

Texts are mostly shortened before anybody has looked for secrets in them, and half a secret is not
recognised any more. So a word, which is what stands between blanks and quotes, is kept whole or not
at all. What a secret with blanks or quotes in it leaves is not known here.
"""

from __future__ import annotations

import re
from typing import Literal

LONGEST_WORD = 512
"""Longer words are cut like any text: they are base64, or data without blanks, and seldom a secret;
without this, nothing at all would be shown of them."""

_NO_WORD = "\t\n\v\f\r \"'`"  # in ASCII alone, so that bytes can be looked at as Latin-1


def shortened(
    text: str, characters: int, keep: Literal["head", "tail"] = "head", mark: str = "..."
) -> str:
    """``text``, or its beginning or its end and a mark where it was cut.

    At most ``characters`` are kept, not counting the mark. A word that the cut would go through is
    left out, unless it has more than 512 characters.
    """
    if len(text) <= characters:
        return text
    if keep == "head":
        return f"{text[: head_end(text, characters)]}{mark}"
    return f"{mark}{text[tail_start(text, len(text) - characters) :]}"


def head_end(text: str, at: int) -> int:
    """Where to cut the end off: at ``at``, or before the word that a cut there would go through.

    Nothing but the 512 characters on either side of ``at`` is looked at.
    """
    before, after = _word_around(text, at)
    return at - before if after else at


def tail_start(text: str, at: int) -> int:
    """Where to cut the beginning off: at ``at``, or after the word there; see ``head_end``."""
    before, after = _word_around(text, at)
    return at + after if before else at


def _word_around(text: str, at: int) -> tuple[int, int]:
    """How many characters of one word stand before and after a place; none if it is longer."""
    left = text[max(0, at - LONGEST_WORD) : at]
    right = text[at : at + LONGEST_WORD]
    before = len(left) - 1 - max(map(left.rfind, _NO_WORD))
    after = min((end for end in map(right.find, _NO_WORD) if end >= 0), default=len(right))
    return (before, after) if before + after <= LONGEST_WORD else (0, 0)


_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_SCANNED = 4_000


def clean(text: object, limit: int = 200) -> str:
    """``text`` on one line of printable characters, without terminal codes, cut at ``limit``."""
    said = str(text)[:_SCANNED]
    if not said.isprintable():
        said = _ESCAPES.sub("", said)
        said = "".join(character if character.isprintable() else " " for character in said)
    said = " ".join(said.split())
    return said if len(said) <= limit else f"{said[: limit - 3]}..."


def last_line(text: str) -> str:
    """The last line of a program's output that says something; a carriage return ends one too."""
    lines = text[-_SCANNED:].replace("\r", "\n").splitlines()
    return next((said for line in reversed(lines) if (said := clean(line))), "")
