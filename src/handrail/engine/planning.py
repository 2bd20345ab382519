"""Plans a resume: reads the outcome of a rehearsal, and carries nothing out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from handrail.core import commands as cmd
from handrail.core.ending import close_bodies, open_waits
from handrail.core.groups import GroupNode
from handrail.core.machine import Machine
from handrail.core.nodes import Node, Phase
from handrail.core.rehearsal import Rehearsal, rehearse
from handrail.core.run_state import RunState, StepNode
from handrail.engine.callbacks import Evaluator
from handrail.engine.step_names import without_step
from handrail.errors import StepChange
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.plan import Plan, PlannedStep, PlanState
from handrail.model.results import WaitsFor
from handrail.record.dropped import stuck_step
from handrail.record.results import children_of
from handrail.record.status import run_status, run_waits


async def retrace(
    machine: Machine, first: ev.Event, now: float, *, evaluator: Evaluator
) -> list[cmd.Command]:
    """Have a machine at its beginning replay its record; returns what a resume would carry out.

    Nothing is performed. The machine's state can be read afterwards, but it cannot be used.
    """
    machine.run.looks_ahead = True
    rehearsing, answer = rehearse(machine, first, lambda: now, shows=False), None
    try:
        while True:
            part = rehearsing.send(answer)
            answer = None
            if isinstance(part, Rehearsal):
                await part.run()
            else:
                answer = await evaluator.evaluated(part, now)
    except StopIteration as done:
        beyond: list[cmd.Command] = done.value
        return beyond
    finally:
        close_bodies(machine.run)


async def plan_of(
    machine: Machine,
    first: ev.Event,
    history: Sequence[ev.Event],
    now: float,
    *,
    evaluator: Evaluator,
    cancel: str | None = None,
) -> Plan:
    """The plan of a resume, by a machine at its beginning, which cannot be used afterwards.

    ``cancel`` says why the resume only unwinds.
    """
    run_id, recorded = machine.run.setting.run_id, machine.run.recorded
    held = await retrace(machine, first, now, evaluator=evaluator)
    failing = machine.run.root.phase is Phase.UNDOING or "" in recorded.undoing
    unwinds = None if machine.run.finished or failing else cancel
    ends_badly = failing or unwinds is not None
    undoes = _undoes(machine, held)
    if ends_badly:
        undoes += _registered(machine, _innermost_first(machine), undoes)
    finished = next((command.result for command in held if isinstance(command, cmd.Finish)), None)
    planned = list(_visited(machine))
    seen = {step.path for step in planned}
    planned += (
        one for one in _unreached_steps(machine, over=finished is not None) if one.path not in seen
    )
    if ends_badly:
        planned = [step for step in planned if step.state != "will run" or step.status is not None]
    elif finished is None:
        planned = list(_with_possible(machine.run.definition, planned))
    return Plan(
        run_id,
        machine.run.definition.name,
        run_status(history),
        tuple(planned),
        None if finished is None else finished.status,
        undoes,
        unwinds,
        () if finished is not None else tuple(_waits(machine, history, now)),
        None if finished is None else stuck_step(finished.error_type, finished.failed_step),
    )


def _waits(machine: Machine, history: Sequence[ev.Event], now: float) -> Iterator[WaitsFor]:
    """What a person must do before the resume, and what the resumed run would wait for."""
    yield from (wait for wait in run_waits(history, now) if wait.kind == "person")
    for wait in open_waits(machine.run):
        if wait.kind != "person" and (wait.until is None or wait.until > now):
            yield wait


def _undoes(machine: Machine, held: Sequence[cmd.Command]) -> tuple[str, ...]:
    """The rollbacks that are due: those that the machine asked for, then those behind them.

    For each node that failed, the machine asks for one rollback at a time.
    """
    first = tuple(command.path for command in held if isinstance(command, cmd.Undo))
    undoing = [node for node in _innermost_first(machine) if node.phase is Phase.UNDOING]
    return (*first, *_registered(machine, undoing, first))


def _innermost_first(machine: Machine) -> list[Node]:
    return [*reversed(machine.run.nodes.values()), machine.run.root]


def _registered(machine: Machine, nodes: Iterable[Node], known: Collection[str]) -> tuple[str, ...]:
    """The rollbacks of the nodes that are still due, except known ones, in the order they run."""
    recorded = machine.run.recorded
    paths = [path for node in nodes for path, _, _ in reversed(node.rollbacks or ())]
    due = (path for path in paths if recorded.at(path).undone is None)
    return tuple(path for path in due if path not in known)


def _visited(machine: Machine) -> Iterator[PlannedStep]:
    """The steps that the code reached, in tree order."""
    changes = {change.path: change for change in machine.run.changes}
    stack = list(reversed(children_of(machine.run.tree, "")))
    while stack:
        path = stack.pop()
        node = machine.run.nodes.get(path)
        if path in changes:
            yield _changed(machine, node, changes[path])
        elif path in machine.run.results and _ended(machine, path):
            result = machine.run.results[path]
            yield PlannedStep(path, "recorded", result.step_type, result.status)
        elif path in machine.run.results:  # an answer or a time that came since ends it
            result = machine.run.results[path]
            interrupted = node is None and _was_interrupted(machine, path)
            yield PlannedStep(
                path, "will run", result.step_type, result.status, interrupted=interrupted
            )
        elif isinstance(node, StepNode) and _ended(machine, path):
            yield _recorded_step(machine, path)  # recorded; its rollback is being looked for
        elif isinstance(node, StepNode):
            interrupted = _was_interrupted(machine, path)
            yield PlannedStep(path, "will run", node.step.verb.kind, interrupted=interrupted)
        stack.extend(reversed(children_of(machine.run.tree, path)))


def _changed(machine: Machine, node: Node | None, change: StepChange) -> PlannedStep:
    """A recorded step that the code describes differently, or a member with another item."""
    result = machine.run.results.get(change.path)
    status = None if result is None else result.status
    kind = node.step.verb.kind if isinstance(node, StepNode) else "member"
    kind = kind if result is None else result.step_type
    return PlannedStep(change.path, "changed", kind, status, change.was, change.now)


def _ended(machine: Machine, path: str) -> bool:
    return machine.run.recorded.at(path).end is not None


def _was_interrupted(machine: Machine, path: str) -> bool:
    return machine.run.recorded.at(path).interrupted


def _unreached_steps(machine: Machine, *, over: bool) -> Iterator[PlannedStep]:
    """Recorded steps that the code did not reach. Unless the run is over, it may reach later those
    that its source has.
    """
    paths = [path for path in machine.run.recorded.ended_paths() if path not in machine.run.results]
    gone = set(paths) if over else without_step(machine.run.definition, paths)
    for path in paths:
        orphaned = path in gone or _left_behind(machine.run, path)
        state: PlanState = "orphaned" if orphaned else "recorded"
        yield _recorded_step(machine, path, state, reached=orphaned)


def _left_behind(run: RunState, path: str) -> bool:
    """True for what is in something that has ended without it, or in a member of no item."""
    while above := run.recorded.parent_of(path):
        group = run.nodes.get(above)
        has_all = isinstance(group, GroupNode) and group.members.exhausted
        is_new = above in run.results and not run.recorded.at(above).ended()
        if is_new or (has_all and path not in children_of(run.tree, above)):
            return True
        path = above
    return False


def _recorded_step(
    machine: Machine, path: str, state: PlanState = "recorded", *, reached: bool = True
) -> PlannedStep:
    end = machine.run.recorded.at(path).end
    assert end is not None
    return PlannedStep(path, state, end.step_type, end.status, reached=reached)


def _with_possible(
    definition: WorkflowDefinition, planned: Sequence[PlannedStep]
) -> Iterator[PlannedStep]:
    """The planned steps and the further ones that the source names, which may run: those of a
    member behind its step that will run, the others at the end.
    """
    from handrail.static.chain import kind_of
    from handrail.static.may_run import may_run
    from handrail.static.source import SourceUnavailable, source_of

    try:
        possible = may_run(source_of(definition.function))
    except SourceUnavailable:
        yield from planned
        return
    known = {step.path for step in planned}
    below: dict[str, set[str]] = {}
    for path in known:
        below.setdefault(path.rpartition("/")[0], set()).add(path)
    due: set[str] = set()
    for step, after in zip(planned, [*(step.path for step in planned[1:]), ""], strict=True):
        yield step
        home = step.path
        while home := home.rpartition("/")[0]:
            if step.state == "will run":
                due.add(home)
            if home not in due or after.startswith(f"{home}/"):
                continue
            due.remove(home)
            siblings = below.setdefault(home, set())
            for other in possible:
                if other.is_in(home) and not any(map(other.matches, siblings)):
                    path = f"{home}/{other.names[-1].text}"
                    siblings.add(path)
                    known.add(path)
                    yield PlannedStep(path, "may run", kind_of(other.verb))
    for other in possible:
        if not any(map(other.matches, known)):
            yield PlannedStep(other.path, "may run", kind_of(other.verb))
