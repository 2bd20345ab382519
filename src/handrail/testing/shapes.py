"""Workflows as data: small trees that say what each step does, and the workflow made from one.

A shape has no names. A step's name is its place in the shape: ``2`` is the third statement of a
body, ``2/0`` the first member of that group, ``1b0``, ``1e0`` and ``1f0`` the first statements of
the ``try``, ``except`` and ``finally`` of a second statement, ``3/o`` a fallback. Sorted part by
part, paths are in tree order: see ``tree_key``.

The shape says which attempts fail, so every run of it does the same: under an executor, which calls
the actions, and by hand, where the test asks ``Action.fails``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, Literal, TypeAlias

from handrail.decorator import Workflow, workflow
from handrail.engine.current import current
from handrail.errors import WorkflowError
from handrail.model.context import WorkflowContext
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentMessage, AgentSessionStarted
from handrail.model.policy import OnError
from handrail.model.results import AgentResult, StepFailed
from handrail.model.shapes import AgentRequest
from handrail.model.work import Found, Tally, Task
from handrail.steps.groups import ForEachGroup, ParallelGroup, WorkGroup
from handrail.steps.scope import scope
from handrail.steps.step import step
from handrail.steps.verbs import Stage, Step, Steps

ALWAYS = 99
"""As a number of failures: every attempt fails."""


class Broken(Exception):
    """The error that failing actions of shapes raise."""


# -- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Act:
    """A call whose first ``failures`` attempts raise ``Broken``."""

    failures: int = 0


@dataclass(frozen=True, slots=True)
class Consult:
    """An agent whose first ``failures`` attempts raise ``Broken``; see ``Thinking``."""

    failures: int = 0


@dataclass(frozen=True, slots=True)
class Together:
    """A ``parallel`` group."""

    members: tuple[Shape, ...]
    on_error: OnError = "fail_fast"
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Each:
    """A ``for_each``; its body returns a step for a ``Shape``, is a generator for a ``Body``."""

    members: tuple[Shape | Body, ...]
    on_error: OnError = "fail_fast"
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Chore:
    """A task of ``Grow``, and the tasks that it brings.

    Its id is its place in the tree: ``0c1`` is the second child of the first task. If it
    ``repeats``, it also brings tasks with ids in use: its own, and that of the first task.
    """

    what: Shape | Body
    children: tuple[Chore, ...] = ()
    priority: float = 0.0
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Grow:
    """A ``work``; its body returns a step for a call, and is a generator for anything else.

    ``enough`` is the number of ended tasks after which its ``stop`` rule stops it.
    """

    tasks: tuple[Chore, ...]
    on_error: Literal["continue", "fail_fast"] = "continue"
    window: int | None = None
    at_most: int | None = None
    enough: int | None = None


@dataclass(frozen=True, slots=True)
class Race:
    """A ``race``."""

    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    """A ``validate``; ``stages`` says for each stage in how many first rounds it fails."""

    stages: tuple[int, ...]
    retry: int = 0
    fix: Shape | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A ``branch``; an arm is the verdict of its predicate (None: it raises) and its step."""

    arms: tuple[tuple[bool | None, Shape], ...]


@dataclass(frozen=True, slots=True)
class Child:
    """A sub-workflow."""

    body: Body


@dataclass(frozen=True, slots=True)
class Inner:
    """A ``scope``."""

    body: Body


@dataclass(frozen=True, slots=True)
class Held:
    """A ``holding``, which claims a name during a body."""

    name: str
    body: Body


@dataclass(frozen=True, slots=True)
class Ask:
    """A question, to be answered with "yes"."""

    timeout_s: float | None = None
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class Nap:
    """A ``sleep``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Listen:
    """A ``wait_for`` of the signal "go"."""


What: TypeAlias = (
    Act
    | Consult
    | Together
    | Each
    | Grow
    | Race
    | Rounds
    | Choice
    | Child
    | Inner
    | Held
    | Ask
    | Nap
    | Listen
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A step: its verb, and its modifiers.

    ``when``: the predicate's verdict, or "raises". ``rollback``: how the rollback ends.
    """

    what: What
    when: Literal[True, False, "raises"] | None = None
    attempts: int = 1
    backoff_s: float = 0.0
    timeout_s: float | None = None
    fallback: Shape | None = None
    settle: Literal["default", "skip"] | None = None
    rollback: Literal["succeeds", "fails"] | None = None
    holds: str | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """A ``try``; ``catches``: ``StepFailed`` only, or everything, cancellation too."""

    body: tuple[Statement, ...]
    handler: tuple[Statement, ...] | None = None
    catches: Literal["failure", "everything"] = "failure"
    final: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Raise:
    """Ends the body with a ``WorkflowError``."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement with the name of another place, because an edit of the code moved or added it."""

    name: str
    statement: Statement


Statement: TypeAlias = Shape | Try | Raise | Placed


@dataclass(frozen=True, slots=True)
class Body:
    """The statements of a workflow, or of a member of ``for_each``."""

    statements: tuple[Statement, ...]


# -- the workflow ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Action:
    """The action of a shape's leaf; the result names the place and the attempt."""

    label: str
    failures: int
    by_round: bool = False
    """True for a stage: ``failures`` counts rounds of the validation, not attempts."""

    def fails(self, path: str, attempt: int) -> bool:
        """True if the attempt at this path is one of those that fail."""
        number = int(path.split("/")[-2]) if self.by_round else attempt
        return number <= self.failures

    def value(self, attempt: int) -> Any:
        """The result of an attempt that does not fail."""
        return None if self.by_round else f"{self.label}#{attempt}"

    async def __call__(self) -> Any:
        """Do what the shape says of this attempt."""
        here = current()
        if self.fails(here.path, here.attempt):
            raise Broken(f"{self.label} is broken")
        return self.value(here.attempt)


class Thinking:
    """The agent of all shapes: it opens a session, emits a message, and ends as the shape says.

    ``hears`` is called with each launch; ``Executor(agents=)`` can replace the agent.
    """

    name = "thinking"

    def __init__(self, hears: Callable[[AgentRequest], None] = lambda _: None) -> None:
        self._hears = hears

    async def run(self, request: AgentRequest, /) -> AgentResult[str | None]:
        """The answer that the shape has for this attempt.

        Raises:
            Broken: the attempt is one that fails.
        """
        label, failures = request.context["label"], request.context["failures"]
        request.emit(AgentSessionStarted(request.path, f"s-{label}", self.name))
        request.emit(AgentMessage(request.path, "I see."))
        self._hears(request)
        action = Action(label, failures)
        if action.fails(request.path, request.attempt):
            raise Broken(f"{label} is broken")
        return AgentResult(action.value(request.attempt), session=f"s-{label}")


@dataclass(frozen=True, slots=True)
class Finding(Action):
    """The action of a task whose body is one step."""

    children: tuple[Task, ...] = ()

    def value(self, attempt: int) -> Any:
        """What an attempt that does not fail finds."""
        return Found(f"{self.label}#{attempt}", self.children)


@dataclass(frozen=True, slots=True)
class Undoing:
    """The rollback of a shape."""

    fails: bool

    async def __call__(self, context: WorkflowContext) -> None:
        """Do what the shape says of the rollback."""
        if self.fails:
            raise Broken(f"the rollback of {context.path} is broken")


def workflow_of(body: Body) -> Workflow[[], tuple[Any, ...]]:
    """The workflow that a shape describes; it returns the outputs of its steps."""

    @workflow(name="shape")
    def shape() -> Steps[tuple[Any, ...]]:
        return (yield from _run(body.statements, ""))

    return shape


def _run(
    statements: tuple[Statement, ...], prefix: str
) -> Generator[Step[Any], Any, tuple[Any, ...]]:
    outputs: list[Any] = []
    for index, statement in enumerate(statements):
        place, given = str(index), statement
        while isinstance(given, Placed):
            place, given = given.name, given.statement
        label = f"{prefix}{place}"
        match given:
            case Shape():
                outputs.append((yield from step_of(given, label)))
            case Try():
                outputs.append((yield from _try(given, label)))
            case Raise():
                raise WorkflowError(f"raised at {label}")
    return tuple(outputs)


def _try(statement: Try, label: str) -> Generator[Step[Any], Any, tuple[Any, ...]]:
    caught = BaseException if statement.catches == "everything" else StepFailed
    try:
        try:
            return (yield from _run(statement.body, f"{label}b"))
        except GeneratorExit:
            raise
        except caught:
            if statement.handler is None:
                raise
            return (yield from _run(statement.handler, f"{label}e"))
    finally:
        if statement.final:
            yield from _run(statement.final, f"{label}f")


def step_of(shape: Shape, label: str) -> Step[Any]:
    """The step that a shape describes, named by ``label``."""
    return _with_modifiers(_verb(shape.what, label), shape)


def _with_modifiers(made: Step[Any], shape: Shape) -> Step[Any]:
    if shape.when is not None:
        made = made.when(_predicate(None if shape.when == "raises" else shape.when))
    if shape.attempts > 1 and not isinstance(shape.what, Inner):
        made = made.retry(shape.attempts, backoff=shape.backoff_s)
    if shape.timeout_s is not None:
        made = made.timeout(shape.timeout_s)
    if shape.fallback is not None:
        fallback = step_of(shape.fallback, "o")
        made = made.on_error(lambda _context, _failed: fallback)
    if shape.rollback is not None:
        made = made.with_rollback(Undoing(shape.rollback == "fails"))
    if shape.holds is not None:
        made = made.holds(shape.holds)
    if shape.settle == "default":
        return made.default("default")
    return made.skip_on_error() if shape.settle == "skip" else made


def _verb(what: What, label: str) -> Step[Any]:  # noqa: C901, PLR0911, PLR0912  # one case a verb
    named = step(label)
    match what:
        case Act(failures=failures):
            return named.call(Action(label, failures))
        case Consult(failures=failures):
            return named.agent(Thinking(), {"label": label, "failures": failures}).answer()
        case Together(members=members, on_error=on_error, window=window):
            steps = [step_of(member, str(index)) for index, member in enumerate(members)]
            return Step(label, ParallelGroup(tuple(steps), on_error, window))
        case Each(members=members, on_error=on_error, window=window):
            return Step(label, ForEachGroup(members, _member, on_error, window))
        case Grow():
            return _grow(what, label)
        case Race(members=members):
            return named.race(*(step_of(member, str(i)) for i, member in enumerate(members)))
        case Rounds(stages=stages, retry=retry, fix=fix):
            checks = [
                Stage(f"c{index}", Action(f"c{index}", failures, by_round=True))
                for index, failures in enumerate(stages)
            ]
            return named.validate(checks, retry, None if fix is None else step_of(fix, "fix"))
        case Choice(arms=arms):
            return named.branch(
                *(
                    (_predicate(verdict), step_of(arm, str(i)))
                    for i, (verdict, arm) in enumerate(arms)
                )
            )
        case Child(body=body):
            return named.run_workflow(workflow_of(body))
        case Inner(body=body):
            return scope(label, _run(body.statements, ""))
        case Held(name=name, body=body):
            return named.holding(name, lambda: _run(body.statements, ""))
        case Ask(timeout_s=timeout_s, has_default=True):
            return named.ask("?", default="default", timeout=timeout_s)
        case Ask(timeout_s=timeout_s):
            return named.ask("?", timeout=timeout_s)
        case Nap(seconds=seconds):
            return named.sleep(seconds)
        case Listen():
            return named.wait_for("go")


def _member(item: Shape | Body) -> Any:
    return step_of(item, "0") if isinstance(item, Shape) else _run(item.statements, "")


def _grow(what: Grow, label: str) -> Step[Any]:
    def stop(tally: Tally[Any]) -> str | None:
        return "enough" if len(tally.ends) >= (what.enough or ALWAYS) else None

    tasks = tuple(_task(chore, str(index)) for index, chore in enumerate(what.tasks))
    verb = WorkGroup(tasks, _chore, what.on_error, what.window, what.at_most, stop)
    return Step(label, verb)


def _task(chore: Chore, place: str) -> Task:
    return Task(place, chore, chore.priority)


def _chore(task: Task) -> Any:
    chore: Chore = task.payload
    brought = [_task(one, f"{task.id}c{index}") for index, one in enumerate(chore.children)]
    if chore.repeats:
        brought[:0] = [Task(task.id, chore), Task("0", chore)]
    children = tuple(brought)
    if isinstance(chore.what, Shape) and isinstance(chore.what.what, Act):
        action = Finding("0", chore.what.what.failures, children=children)
        return _with_modifiers(step("0").call(action), chore.what)
    return _chore_body(chore.what, children)


def _chore_body(what: Shape | Body, children: tuple[Task, ...]) -> Steps[Found[Any]]:
    statements = (what,) if isinstance(what, Shape) else what.statements
    return Found((yield from _run(statements, "")), children)


def _predicate(verdict: object) -> Any:
    def decided(_context: WorkflowContext) -> bool:
        if verdict is None:
            raise Broken("the predicate is broken")
        return bool(verdict)

    return decided


# -- paths ----------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\d+|[a-z]+")


def tree_key(path: str) -> tuple[Any, ...]:
    """The sort key that puts paths of shapes in tree order, parents first."""
    parts = path.split("/") if path else []
    below = [*(part.partition("~")[0] for part in parts[1:]), ""]
    return tuple(
        _part_key(part, holds_fallback=child == "o")
        for part, child in zip(parts, below, strict=False)
    )


def _part_key(part: str, *, holds_fallback: bool) -> tuple[Any, ...]:
    """By name, number by number; then by attempt, with the fallback after all attempts."""
    name, _, attempt = part.partition("~")
    tokens = tuple(
        (0, int(token), "") if token.isdigit() else (1, 0, token) for token in _TOKEN.findall(name)
    )
    return tokens, ALWAYS if holds_fallback else int(attempt or 0)
