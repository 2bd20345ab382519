"""What a turn of codex used, of the running totals that it tells of a whole thread."""

from __future__ import annotations

from handrail.agents.programs.loose_json import Object, count_in, object_in
from handrail.agents.programs.usage_since import added_since
from handrail.model.results import Usage

_NOTHING = Usage(
    input_tokens=0,
    output_tokens=0,
    cached_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
)


class ThreadUsage:
    """The totals of a thread, before this turn and now. Mutable.

    A thread that is gone on in tells its total again before the first call of a model, under the
    id of an older turn. Where it does not, the total before is what the caller knows, else what
    remains of the first one when its last call is taken off.
    """

    def __init__(self, *, fresh: bool, earlier: Usage | None) -> None:
        self.total: Usage | None = None
        self.context_tokens: int | None = None
        self._before = _NOTHING if fresh else earlier

    @property
    def spent(self) -> Usage | None:
        """What was used since the turn began; None if nothing was told."""
        return None if self.total is None else added_since(self._before, self.total)

    def told(self, usage: Object, *, is_ours: bool, is_call: bool = True) -> None:
        """Take in what codex said: of our turn or of an older one, after a call or between."""
        total, last = object_in(usage, "total"), object_in(usage, "last")
        self.context_tokens = count_in(last, "totalTokens") or self.context_tokens
        counted = _counted(total)
        if counted is None:
            return
        if not is_ours:
            self._before = counted
            return
        if self._before is None:
            call = (_counted(last) if is_call else None) or _NOTHING
            self._before = counted.since(call)
        self.total = counted


def _counted(tokens: Object) -> Usage | None:
    found = Usage(
        input_tokens=count_in(tokens, "inputTokens"),
        output_tokens=count_in(tokens, "outputTokens"),
        cached_tokens=count_in(tokens, "cachedInputTokens"),
        cache_write_tokens=count_in(tokens, "cacheWriteInputTokens"),
        reasoning_tokens=count_in(tokens, "reasoningOutputTokens"),
    )
    return None if found == Usage() else found
