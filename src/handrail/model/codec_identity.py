"""Values as fingerprints see them: what cannot be written is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handrail.model.codec_write import TOO_DEEP, Refused, Writing, class_of
from handrail.model.reference import reference


class Naming(Writing):
    """The writing of a value in which a name stands for what cannot be written. Mutable."""

    __slots__ = ()

    def write(self, value: Any, depth: int) -> Any:
        """The tree of the value, or its name."""
        try:
            return super().write(value, depth)
        except Refused as refused:
            if refused.why == TOO_DEEP:
                raise  # as a whole: in what contains itself there is no end of parts
            return name_of(value)


def name_of(value: Any) -> str:
    """``<module:qualname>`` of a function, of any other value that of its class."""
    kind = class_of(value)
    try:
        target: Callable[..., Any] = value if callable(value) else kind
        return f"<{reference(target)}>"
    except Exception:  # noqa: BLE001  # a user's __getattr__ may do anything
        return f"<{reference(kind)}>"
