"""Whether today's code still replays a recorded run; nothing is performed, nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handrail.codec.unresolved import Unresolvable
from handrail.core.comparison import Comparison, Diverged
from handrail.engine.executor import Engine
from handrail.engine.step_names import yielded_at
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.history import Divergence, ReplayReport
from handrail.record.dropped import begun
from handrail.record.reading import ended, refuse_other_workflow


async def replayed(
    engine: Engine, history: Sequence[ev.Event], definition: WorkflowDefinition
) -> ReplayReport:
    """The code of a workflow against a recorded run of it.

    Raises:
        WrongUse: it is a run of another workflow.
    """
    refuse_other_workflow(history, definition)
    run, evaluator = engine.as_recorded(history, definition)
    comparison = Comparison(run, begun(history), ended(history))
    comparison.begin(comparison.of_run())
    report, found = None, None
    try:
        while (question := comparison.next_question(report)) is not None:
            report = await evaluator.evaluated(question, 0.0)
    except Diverged as diverged:
        found = diverged.divergence
    except Unresolvable as error:
        found = Divergence(error.path, "an output", str(error), comparison.line)
    finally:
        comparison.close()
    if run.escaped is not None:
        raise run.escaped
    if found is not None and not found.where and found.path:
        found = replace(found, where=yielded_at(definition, found.path))
    return ReplayReport(history[0].run_id, found)
