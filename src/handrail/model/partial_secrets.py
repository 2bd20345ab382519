"""How much of a text that is still coming can be looked through for secrets.

A text is shown up to where something begins that may yet become a secret: a beginning of a value,
or a word that may be a token. Whatever lies across that place is kept back as a whole, so that the
part before it reads as it would with the rest. Of what was shown the last few characters matter to
what comes next: some tokens are such only at the beginning of a word.
"""

from __future__ import annotations

from handrail.model.secrets import SecretFinder

_STARTS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
    *("AKIA", "ASIA", "AIza", "eyJ"),
)
_PARTS_OF_STARTS = tuple({start[:end] for start in _STARTS for end in range(1, len(start))})
# A token is made of these, and so is the colour of a terminal that may stand before it.
_OF_TOKENS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.;[\x1b"

LONGEST_TOKEN = 8_192
"""Of a longer word the end is not waited for: it is base64 or the like."""

_CONTEXT = 5
"""So far back from its start a token's pattern looks (``;255m``); no secret is that short."""


def context_of(text: str) -> str:
    """What must be known of a text that was shown, to mask the one that follows it."""
    return text[-_CONTEXT:] if text and (text[-1].isalnum() or text[-1] in _OF_TOKENS) else ""


def settled(text: str, finder: SecretFinder | None) -> int:
    """Up to where the text can be masked now; the rest goes before what comes next."""
    end = min(_value_start(text, finder), _token_start(text))
    before = -1
    while end != before:
        before = end
        end = min(_before_values(text, end, finder), _before_word(text, end))
    return end


def _value_start(text: str, finder: SecretFinder | None) -> int:
    """Where the longest beginning of a value is with which the text ends; its end if none."""
    found = len(text)
    if finder is None or not text or text[-1] not in finder.inside:
        return found
    for value in finder.names:
        here = text.find(value[0], max(0, len(text) - len(value) + 1), found)
        while here >= 0:
            if value.startswith(text[here:]):
                found = here
                break
            here = text.find(value[0], here + 1, found)
    return found


def _before_values(text: str, end: int, finder: SecretFinder | None) -> int:
    """``end``, or where a value starts that lies across it."""
    if finder is None or end == len(text) or not finder.occurs_in(text):
        return end
    across = (m.start() for m in finder.pattern.finditer(text) if m.start() < end < m.end())
    return next(across, end)


def _token_start(text: str) -> int:
    """Where the word begins with which the text ends, if it may be a token; else the text's end."""
    here = len(text.rstrip(_OF_TOKENS))
    word = text[here:]
    if not word or len(word) > LONGEST_TOKEN:
        return len(text)
    if word.endswith(_PARTS_OF_STARTS) or _has_start(word):
        return here
    return len(text)


def _before_word(text: str, end: int) -> int:
    """``end``, or where a word begins that lies across it and may be a token."""
    if end == len(text):
        return end
    here = len(text[:end].rstrip(_OF_TOKENS))
    word = text[here : len(text) - len(text[end:].lstrip(_OF_TOKENS))]
    return here if len(word) <= LONGEST_TOKEN and _has_start(word) else end


def _has_start(word: str) -> bool:
    return any(start in word for start in _STARTS)
