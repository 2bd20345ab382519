"""What codex tells while it works on a turn, as notices, and what is known when it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

from handrail.agents.codex.limits import PlanLimits
from handrail.agents.codex.thread_items import ThreadItems
from handrail.agents.codex.usage import ThreadUsage
from handrail.agents.programs.loose_json import NOTHING, Object, object_in, text_in
from handrail.model.events import AgentCompaction, AgentRetry, AgentUsage, Notice
from handrail.model.results import Usage

NETWORK_WAITS = 12
"""How often codex may say that it waits for a network before that is the end: about three minutes.
It never gives up by itself, and as long as it says so it is not silent."""

_ATTEMPT = re.compile(r"^Reconnecting(?:\.{3}|\u2026)\s*(\d{1,9})\s*/")
_DELAY = re.compile(r"try again in (\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)\b", re.IGNORECASE)


class News:
    """All that was told of a turn. Mutable.

    ``fresh``: the thread is a new one; ``earlier`` is what an old one had used, if that is known.
    """

    def __init__(self, path: str, *, fresh: bool, earlier: Usage | None) -> None:
        self.items = ThreadItems(path)
        self.limits = PlanLimits()
        self.usage = ThreadUsage(fresh=fresh, earlier=earlier)
        self.model: str | None = None
        self.complaint = ""
        self.fault: Object = NOTHING
        """The last error that codex did not mean to try again after."""
        self.patience_s = 0.0
        self._path = path
        self._spent: Usage | None = None
        self._network_waits = 0
        self._compacting_from: int | None = None
        self._compactions = 0

    @property
    def is_cut_off(self) -> bool:
        """True once codex has waited for a network in vain."""
        return self._network_waits >= NETWORK_WAITS

    def read(self, method: str, params: Object) -> Iterator[Notice]:
        """What a notification about our turn means; most mean nothing."""
        match method:
            case "item/started":
                yield from self._item_started(object_in(params, "item"))
            case "item/completed":
                yield from self._item_completed(object_in(params, "item"))
            case "item/agentMessage/delta":
                self._network_waits = 0
                self.items.piece(text_in(params, "itemId"), text_in(params, "delta"))
            case "item/reasoning/summaryTextDelta":
                self.items.thought(text_in(params, "itemId"), text_in(params, "delta"))
            case "thread/compacted":
                yield from self._thread_compacted()
            case "model/rerouted":
                self.model = text_in(params, "toModel") or self.model
            case _:
                pass

    def counted(self, params: Object, *, is_ours: bool, is_call: bool) -> Iterator[Notice]:
        """What a count of tokens means: of our turn, or of one before it."""
        self.usage.told(object_in(params, "tokenUsage"), is_ours=is_ours, is_call=is_call)
        spent = self.usage.spent
        if is_ours and spent is not None and spent != self._spent:
            self._spent = spent
            yield AgentUsage(self._path, spent)

    def limited(self, params: Object) -> Iterator[Notice]:
        """What changed of the plan's windows."""
        yield from self.limits.told(self._path, object_in(params, "rateLimits"))

    def complained(self, params: Object) -> Iterator[Notice]:
        """An error that is not the end: codex tries again, or the turn's end will tell."""
        error = object_in(params, "error")
        message, details = text_in(error, "message"), text_in(error, "additionalDetails")
        self.complaint = details or message or self.complaint
        if params.get("willRetry") is not True:
            self.fault = error
            return
        if "waiting for network" in message:
            self._network_waits += 1
        attempt = _ATTEMPT.match(message)
        delay_s = _delay_s(details or message)
        self.patience_s = delay_s or 0.0
        yield AgentRetry(
            self._path, int(attempt[1]) if attempt else None, delay_s, details or message
        )

    def _item_started(self, item: Object) -> Iterator[Notice]:
        self._network_waits = 0
        if text_in(item, "type") == "contextCompaction":
            self._compacting_from = self.usage.context_tokens
            yield AgentCompaction(self._path, "started", before_tokens=self._compacting_from)
        else:
            yield from self.items.started(item)

    def _item_completed(self, item: Object) -> Iterator[Notice]:
        self._network_waits = 0
        if text_in(item, "type") == "contextCompaction":
            self._compactions += 1
            yield self._compacted()
        else:
            yield from self.items.completed(item)

    def _thread_compacted(self) -> Iterator[Notice]:
        """What older versions tell instead of the item, newer ones beside it."""
        if self._compactions:
            self._compactions -= 1
        else:
            yield self._compacted()

    def _compacted(self) -> Notice:
        before, after = self._compacting_from, self.usage.context_tokens
        self._compacting_from = None
        return AgentCompaction(
            self._path,
            "completed",
            before_tokens=before,
            after_tokens=after if after != before else None,
        )


def _delay_s(text: str) -> float | None:
    found = _DELAY.search(text)
    if found is None:
        return None
    delay = float(found[1])
    return delay / 1000 if found[2].lower() == "ms" else delay
