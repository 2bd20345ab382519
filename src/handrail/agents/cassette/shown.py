"""Recordings as they are written: without secrets, and the same wherever the working tree is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from handrail.model.events import AgentMessage, AgentReasoning, Notice, StepOutput
from handrail.secrets.masking import NAME_LEAST, Mask

_TREE = "${WORKING_TREE}"


class Shown:
    """Data of a recording as they are written, and as they are here."""

    def __init__(self, root: Path, mask: Mask) -> None:
        self.mask = mask
        self._root = str(root)
        known = len(self._root) > 1
        self._here = re.compile(rf"{re.escape(self._root)}(?![\w-])") if known else None

    def out(self, value: Any) -> Any:
        """JSON data, or a text, as it is written."""
        return _over(value, self._out)

    def back(self, value: Any) -> Any:
        """JSON data, or a text, as it is here."""
        return _over(value, lambda text: text.replace(_TREE, self._root))

    def _out(self, text: str) -> str:
        shown = text if self._here is None else self._here.sub(lambda _: _TREE, text)
        return self.mask.text(shown)

    def pieces(self, notices: Sequence[Notice]) -> tuple[Notice, ...]:
        """The notices; where a secret lies across several pieces of a text, it is cut out."""
        shown = list(notices)
        for places in _texts(notices):
            texts = [cast("Any", notices[place]).text for place in places]
            if self.mask.text("".join(texts)) == "".join(map(self.mask.text, texts)):
                continue
            for place, text in zip(places, self._cut(texts), strict=True):
                shown[place] = replace(cast("Any", notices[place]), text=text)
        return tuple(shown)

    def _cut(self, texts: Iterable[str]) -> list[str]:
        """Pieces of a text that together are the text without secrets."""
        cut: list[str] = []
        rest = before = ""
        for text in texts:
            piece, rest, before = self.mask.split(rest + text, before)
            cut.append(piece)
        cut[-1] += self.mask.after(before, rest)
        return cut


def _texts(notices: Sequence[Notice]) -> list[list[int]]:
    """Where the pieces of each text are that comes in pieces."""
    places: dict[tuple[type, str], list[int]] = {}
    for place, notice in enumerate(notices):
        if isinstance(notice, (AgentMessage, AgentReasoning, StepOutput)):
            key = (type(notice), getattr(notice, "stream", ""))
            places.setdefault(key, []).append(place)
    return list(places.values())


def _over(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every text changed; short names in objects are words of handrail's."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_over(item, change) for item in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k if len(k) < NAME_LEAST else change(k): _over(v, change) for k, v in items}
    return value
