"""What an agent said and did in one launch, in short: for a session that must go on without it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from handrail.model.events import AgentMessage, AgentSessionStarted, AgentToolStarted, Notice
from handrail.shortening import LONGEST_WORD, shortened
from handrail.typed.jsonsafe import short_repr

_KEPT = 40
_SHOWN_CHARS = 160
_TEXT_CHARS = 4_000


class Digest:
    """Passes notices on, as those of one launch, and keeps the last messages and tools. Mutable."""

    def __init__(self, emit: Callable[[Notice], None], launch: int) -> None:
        self._emit = emit
        self._launch = launch
        self._kept: deque[str] = deque()
        self._before = ""

    def __call__(self, notice: Notice) -> None:
        """Keep it if it is of use, and pass it on."""
        if isinstance(notice, AgentMessage):
            self._keep(notice.text)
        elif isinstance(notice, AgentToolStarted):
            self._keep(f"\n[used {notice.name}: {short_repr(notice.input, _SHOWN_CHARS)}]\n")
        elif isinstance(notice, AgentSessionStarted):
            notice = replace(notice, launch=self._launch)
        self._emit(notice)

    def text(self) -> str:
        """The end of what was said and done."""
        kept = "".join(self._kept).rstrip()
        most = min(len(kept), _TEXT_CHARS)
        return shortened(self._before + kept, most, keep="tail", mark="").strip()

    def _keep(self, text: str) -> None:
        """Keep it in place of the oldest, of whose end no more is needed than to know a word."""
        self._kept.append(text)
        if len(self._kept) > _KEPT:
            self._before = (self._before + self._kept.popleft())[-LONGEST_WORD - 1 :]
