"""A cancellation that comes when a run has ended, and its driver has not let go of it yet."""

from __future__ import annotations

from typing import Any

import pytest

from handrail import Executor, Steps, step, workflow
from handrail.model import events as ev
from handrail.ports.journal import Letter
from handrail.testing import ProcessGone, TextJournal
from tests.engine.support import RUN, Jumping, boom, forever, same


def flow(*, broken: bool) -> Any:
    """A workflow that fails while it is broken."""

    @workflow(name="flow")
    def body() -> Steps[Any]:
        yield from step("first").call(same)
        yield from step("second").call(boom if broken else same)
        return "done"

    return body


async def ended(*, broken: bool) -> tuple[TextJournal, Jumping]:
    """A run that has ended, and a request to cancel it that came a moment later."""
    journal, clock = TextJournal(), Jumping()
    await Executor(journal=journal, clock=clock).options(run_id=RUN).run(flow(broken=broken))
    clock.time += 0.001
    journal.post(Letter(ev.stamp(ev.CancelRequested("stop it"), RUN, 0, clock.time)))
    clock.time += 10
    return journal, clock


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "after a crash"])
@pytest.mark.parametrize("broken", [True, False], ids=["failed", "succeeded"])
async def test_it_counts_for_no_later_drive(*, broken: bool, dies: bool) -> None:
    """A failed run that was mended goes on, and a rerun runs; also in the drives that follow."""
    journal, clock = await ended(broken=broken)
    rerun = () if broken else ("second",)
    if dies:
        dying = journal.reopened(stop_at=1)
        journal.kill()
        with pytest.raises(ProcessGone):
            await Executor(journal=dying, clock=clock).resume(RUN, flow(broken=False), rerun=rerun)
        journal, rerun = dying.reopened(), ()
    executor = Executor(journal=journal, clock=clock)
    plan = await executor.plan(RUN, flow(broken=False), rerun=rerun)
    assert plan.unwinds is None
    result = await executor.resume(RUN, flow(broken=False), rerun=rerun)
    assert (result.status, result.value) == ("succeeded", "done")
    assert [one.path for one in result.step_results if not one.replayed] == ["second"]


async def test_one_that_comes_to_the_next_drive_counts() -> None:
    """Whoever holds the run when it is asked for unwinds it."""
    journal, clock = await ended(broken=True)

    @workflow(name="flow")
    def slow() -> Steps[Any]:
        yield from step("first").call(same)
        clock.time += 1
        journal.post(Letter(ev.stamp(ev.CancelRequested("now"), RUN, 0, clock.time)))
        yield from step("second").call(forever)

    result = await Executor(journal=journal, clock=clock).resume(RUN, slow)
    assert (result.status, result.error) == ("cancelled", "now")
