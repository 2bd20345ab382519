"""Cuts texts to a length without leaving a piece of a word.

Most texts are shortened before their secrets are masked, and masking does not recognise half a
secret. So a word (the text between two blanks or quotes) is kept whole or dropped. This does not
protect a secret that itself contains blanks or quotes.
"""

from __future__ import annotations

import re
from typing import Literal

LONGEST_WORD = 512
"""Longer words are cut like any text: they are base64, or data without blanks, and seldom a secret.
Otherwise nothing at all would be shown of them."""

_WORD_SEPARATORS = "\t\n\v\f\r \"'`"  # ASCII only, so that bytes decoded as Latin-1 work too


def shortened(
    text: str, characters: int, keep: Literal["head", "tail"] = "head", mark: str = "..."
) -> str:
    """``text``, or its beginning or end, with a mark where it was cut.

    At most ``characters`` are kept, not counting the mark. A word that the cut would split is left
    out, unless it has more than 512 characters.
    """
    if len(text) <= characters:
        return text
    if keep == "head":
        return f"{text[: head_end(text, characters)]}{mark}"
    return f"{mark}{text[tail_start(text, len(text) - characters) :]}"


def head_end(text: str, at: int) -> int:
    """Where to cut the end off: at ``at``, or before the word that a cut there would split.

    Only the 512 characters on either side of ``at`` are searched.
    """
    before, after = _word_around(text, at)
    return at - before if after else at


def tail_start(text: str, at: int) -> int:
    """Where to cut the beginning off: at ``at``, or after the word there; see ``head_end``."""
    before, after = _word_around(text, at)
    return at + after if before else at


def _word_around(text: str, at: int) -> tuple[int, int]:
    """How many characters of one word are before and after ``at``; (0, 0) for a longer word."""
    left = text[max(0, at - LONGEST_WORD) : at]
    right = text[at : at + LONGEST_WORD]
    before = len(left) - 1 - max(map(left.rfind, _WORD_SEPARATORS))
    after = min((end for end in map(right.find, _WORD_SEPARATORS) if end >= 0), default=len(right))
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


def without_codes(text: str) -> str:
    """``text`` without terminal codes; what cannot be printed is a blank, lines and tabs stay."""
    if text.isprintable():
        return text
    said = _ESCAPES.sub("", text)
    return "".join(one if one.isprintable() or one in "\n\t" else " " for one in said)


_ON_A_TERMINAL = re.compile(
    r"\x1b\[(?![0-9;]*[ABCDGKm]|\?25[hl])[0-?]*[ -/]*[@-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b(?!\[).?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def for_terminal(text: str) -> str:
    """``text`` with no terminal codes but colours and those that redraw lines."""
    return text if text.isprintable() else _ON_A_TERMINAL.sub("", text)


def last_line(text: str) -> str:
    """The last line of a program's output that is not blank; a carriage return ends a line too."""
    lines = text[-_SCANNED:].replace("\r", "\n").splitlines()
    return next((said for line in reversed(lines) if (said := clean(line))), "")


TRACEBACK = "Traceback (most recent call last):"
_AROUND = re.compile(
    r"""(?:\w+: )?(?:member|step|workflow) (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") failed: """
)
"""What the error of a step around a failure begins with."""


_FAILED_TEST = re.compile(
    r"^[ \t]*(?:(?:FAIL(?:ED)?|ERROR|--- FAIL|not ok)\b:? [^(\n].*|test \S+ \.\.\. FAILED)$",
    re.MULTILINE,
)
"""The line with which unittest, pytest, go, cargo and TAP name a test that failed."""


def failed_test_in(printed: str) -> str:
    """The first line of a program's output that names a test that failed; empty without one."""
    found = _FAILED_TEST.search(printed)
    return "" if found is None else clean(found[0])


def reason_of(error: str, error_type: str | None = None, limit: int = 500) -> str:
    """An error on one line: its class and its first line, without the steps around it. Of a
    program's output also the test that failed, of a traceback the line that names the exception.

    If that is longer than ``limit``, its middle is left out.
    """
    said, kind = error, _kind_of(error_type)
    while (around := _AROUND.match(said)) is not None:
        said = said[around.end() :]
    said = said.removeprefix(f"{kind}: ")
    before, traceback, _ = said.partition(TRACEBACK)
    lines, raised, test = [line for line in before.splitlines() if line.strip()], "", ""
    if traceback:
        frames = said.rpartition(TRACEBACK)[2].splitlines()
        raised = next((line for line in frames if line[:1].strip()), traceback)
    if len(lines) == 1:  # what was raised is said behind it
        lines, raised = [lines[0] + raised], ""
    else:
        test = failed_test_in("\n".join(said.splitlines()[1:]))
    told = clean(" ... ".join(filter(None, (*lines[:1], test, raised))), _SCANNED)
    if len(told) > limit:
        head = shortened(told, limit * 2 // 3, mark=" ... ")
        told = head + shortened(told, limit - len(head), "tail", mark="")
    return error_text(told, error_type, _SCANNED)


def error_text(error: str | None, error_type: str | None = None, limit: int = 200) -> str:
    """An error on one line, with the short name of its class in front."""
    said, kind = clean(error or "", limit), _kind_of(error_type)
    if not kind or said.startswith(kind):
        return said
    return f"{kind}: {said}" if said else kind


def _kind_of(error_type: str | None) -> str:
    return clean((error_type or "").rpartition(".")[2], 80)
