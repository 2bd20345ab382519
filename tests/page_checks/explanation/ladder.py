"""Compares the page docs/explanation/ladder.md with the code, in the names of its blocks."""

from handrail import Ladder

ladder = Ladder()
assert (ladder.cap_probe_s, ladder.cap_margin_s, ladder.cap_wait_s) == (1800, 30, 1800)
assert (ladder.backoff.initial_s, ladder.backoff.factor, ladder.backoff.max_s) == (5, 2, 900)
assert 1800 == round(result.incidents[1].waited_s)

once = FakeBackend([AgentError("a", "gone", kind="crashed"), "done"])
result = Executor(clock=JumpClock()).run_sync(
    workflow("w")(lambda: (yield from step("a").agent(Agent("a", "x", backend=once)).once()))
)
assert (result.status, len(once.turns)) == ("failed", 1)

# Waits do not count for a timeout, and re-asks are not multiplied by retries.
capped = [AgentError("a", "cap", kind="usage_cap")] * 3
agent = Agent("a", "x", backend=FakeBackend([*capped, "done"]))
result = Executor(clock=JumpClock()).run_sync(
    workflow("w")(lambda: (yield from step("a").agent(agent).timeout(60)))
)
assert result.success, result
stubborn = FakeBackend(["x"] * 20)
agent = Agent("a", "x", output=int, backend=stubborn)
result = Executor(clock=JumpClock()).run_sync(
    workflow("w")(lambda: (yield from step("a").agent(agent).retry(3)))
)
assert result.status == "failed" and len(stubborn.turns) == 1 + 2 + 2, len(stubborn.turns)
