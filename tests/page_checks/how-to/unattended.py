"""Compares the page docs/how-to/unattended.md with the code, in the names of its blocks."""

test_a_night_with_a_cap_costs_no_attempt()

# ---
from handrail import Ladder

ladder = Ladder()
assert (ladder.transient_retries, ladder.crash_retries, ladder.timeout_retries) == (None, 2, 2)
assert (ladder.cap_max_wait_s, ladder.cap_probe_s, ladder.cap_wait_s) == (8 * 86_400, 1800, 1800)
assert (ladder.transient_max_wait_s, Agent("a", "x").max_reasks) == (12 * HOUR, 2)
late = Executor(clock=JumpClock()).run_sync(
    workflow("w")(
        lambda: (
            yield from step("a").agent(
                Agent(
                    "a",
                    "x",
                    backend=FakeBackend(
                        [AgentError("a", "cap", kind="usage_cap", retry_at=START + 9 * 86_400)]
                    ),
                )
            )
        )
    )
)
assert late.status == "suspended" and "more than 8 days" in late.error, late
