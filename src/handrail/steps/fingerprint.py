"""The fingerprint of a step: a text that can be compared with the recorded one.

It covers what determines the step's output, as far as the workflow says: the verb, the callable by
name, its arguments, a command and its folder, an agent's prompt and output, a child's inputs, the
mode of a group. It leaves out function bodies, modifiers, environment, time limits, and an agent's
backend and options: these may change between two drives of a run.

People read the text too: a mismatch shows it. A long text is cut, and gets a digest of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handrail.secrets.tokens import without_tokens
from handrail.secrets.values import mask_text
from handrail.steps.verbs import Step

if TYPE_CHECKING:
    from handrail.codec.codec import Codec

_LONGEST = 160
_KEPT = 120


def fingerprint(step: Step[Any], codec: Codec, secrets: Mapping[str, str] | None = None) -> str:
    """The step's verb and its arguments, on one line; equal for equal steps.

    Names replace the values of ``secrets``, so that a renewed secret does not change the text.
    """
    return short(step.verb.fingerprint(codec.identity), secrets)


def matches(
    recorded: str, step: Step[Any], codec: Codec, secrets: Mapping[str, str] | None = None
) -> bool:
    """True if the step has the recorded fingerprint.

    The fast path masks no secrets: a text that equals the recorded one has none to mask.
    """
    plain = step.verb.fingerprint(codec.identity)
    return recorded == plain or recorded == short(plain, secrets)  # the second is slow


def item_digest(item: Any, codec: Codec, secrets: Mapping[str, str] | None = None) -> str:
    """A member's item as a text that can be compared with the recorded one."""
    return short(codec.identity(item), secrets)


def short(text: str, secrets: Mapping[str, str] | None = None) -> str:
    """The text without secrets: all of it, or its beginning and a digest of the whole."""
    text = mask_text(text, secrets) if secrets else without_tokens(text)
    if len(text) <= _LONGEST:
        return text
    import hashlib  # 2 ms that most processes need not pay

    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:_KEPT]}... #{digest}"
