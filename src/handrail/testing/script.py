"""``Script``: a run that a test drives by hand; each line of the test says how a step ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeVar, cast

import attrs

from handrail.core import commands as cmd
from handrail.core.machine import Machine
from handrail.core.setting import Setting
from handrail.engine.callbacks import Evaluator
from handrail.engine.current import Contexts, built_context
from handrail.engine.parts import definition_of
from handrail.errors import GateRefusal, WrongUse
from handrail.model import events as ev
from handrail.model.definition import bind_inputs
from handrail.model.policy import Limits, seconds_of
from handrail.model.results import StepResult, WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.project import configured_stages
from handrail.record.answers import accept_answer
from handrail.steps.leaves import Launching
from handrail.steps.verbs import Stage
from handrail.testing.clock import START
from handrail.testing.script_drive import Drive, OpenAttempt, run_to_end
from handrail.testing.script_pending import Pending, Waits, describe_state
from handrail.typed.jsonsafe import short_repr


def pending_of(drive: Drive) -> dict[str, Pending]:
    """All that the run waits for, by path: parents first, children as they were yielded."""
    if drive.result is not None:
        return {}
    found = {entry.path: entry for entry in _waits(drive)}
    return {path: found[path] for path in _tree_order(drive.machine.run.tree) if path in found}


def in_flight(drive: Drive, path: str) -> Pending | None:
    """The attempt or rollback in flight at this path; does not build the other entries."""
    open_attempt = drive.open_attempts.get(path)
    if open_attempt is None:
        return None
    waits: Waits = "attempt" if isinstance(open_attempt.command, cmd.Perform) else "rollback"
    return Pending(path, drive.steps[path], waits, drive, open_attempt=open_attempt)


def _waits(drive: Drive) -> Iterator[Pending]:
    machine, steps = drive.machine, drive.steps
    for path, due in drive.pauses().items():
        yield Pending(path, steps[path], "pause", drive, due=due)
    for path in drive.open_attempts:
        entry = in_flight(drive, path)
        assert entry is not None
        yield entry
    for path, gate in machine.run.gates.items():
        yield Pending(path, steps[path], "gate", drive, gate=gate, due=gate.deadline)
    for listening in machine.run.listeners.values():
        for path in listening:
            yield Pending(path, steps[path], "signal", drive)


def _tree_order(tree: Mapping[str, Iterable[str] | str]) -> Iterator[str]:
    """Every path, in tree order; ``tree`` maps a path to its children, or to its only child."""
    stack = [""]
    while stack:
        path = stack.pop()
        yield path
        below = tree.get(path, ())
        stack.extend([below] if isinstance(below, str) else reversed([*below]))


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


def _option_field(kind: type, otherwise: Callable[[], Any], such_as: str) -> Any:
    """A field for a value of this kind; None stands for the default."""

    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise WrongUse(
                f"Script.options({attribute.name}=) takes {such_as}, got {short_repr(value)}"
            )

    converter: Callable[[Any], Any] = attrs.converters.default_if_none(factory=otherwise)
    return attrs.field(default=None, converter=converter, validator=check)


@attrs.frozen(kw_only=True)
class ScriptOptions:
    """Makes scripts with these options: ``Script.options(services={...})(ship, "task")``.

    ``start`` is the time at which the run begins (unix seconds). ``auto_advance``: while a run
    waits for nothing but time (pauses between attempts, ``sleep``), time passes at once.
    """

    run_id: str = "script"
    services: Mapping[str, Any] = _option_field(Mapping, dict, "a mapping, such as {'db': db}")
    config: Mapping[str, Any] = _option_field(
        Mapping, dict, "a mapping, such as {'style': 'terse'}"
    )
    stages: Mapping[str, Any] = _option_field(
        Mapping, dict, "a mapping, such as {'lint': 'ruff check'}"
    )
    limits: Limits = _option_field(Limits, Limits, "Limits(...), such as Limits(max_steps=1000)")
    start: float = START
    cleanup_timeout_s: float = 30.0
    auto_advance: bool = False

    def __call__(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Script[R]:
        """The script of a run of this workflow with these inputs."""
        script = cast("Script[R]", object.__new__(Script))
        script.begin(self, workflow, args, kwargs)
        return script


class Script(Generic[R_co]):
    """A run without executor or event loop: the test says how each step ended.

        script = Script(ship, "fix the login bug")
        script.expect("plan", agent="planner").returns(Plan(...))
        script.expect("implement").fails(OSError("disk full"))
        script.advance(1)                                # the pause before the second attempt
        script.expect("implement").returns("done")
        script.expect("verify/1/tests").passes()
        script.answer("merge?", "yes")
        assert script.finish().value == Report(...)

    The script calls the workflow's body, predicates, context builders and ``on_error`` handlers for
    real, but no actions, commands, agents, stages or rollbacks. A test may end members of a group
    in any order. Only ``advance`` moves time. Limits on concurrency and rates do not apply: every
    attempt that may begin is pending at once.

    As a context manager it calls ``finish`` at the end of the block. ``Script.options(...)`` sets
    services, stages, limits and more. A call that does not fit the workflow raises an
    ``AssertionError`` that says what is pending. Mutable.
    """

    options: ClassVar[type[ScriptOptions]] = ScriptOptions

    def __init__(
        self, workflow: WorkflowLike[P, R_co], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        self.begin(ScriptOptions(), workflow, args, kwargs)

    def begin(
        self,
        options: ScriptOptions,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Begin the run; only constructors call this."""
        definition = definition_of(workflow)
        inputs = bind_inputs(definition, args, kwargs)
        setting = Setting(options.run_id, options.limits, options.cleanup_timeout_s)
        self._options = options
        self._contexts = Contexts(options.run_id, options.services, options.config)
        self._evaluator = Evaluator(self._contexts, dict, None)
        self._machine = Machine(definition, inputs, setting)
        self._drive = Drive(
            self._machine,
            self._evaluate,
            self._contexts,
            now=options.start,
            auto_advance=options.auto_advance,
            prepare=self._build_context,
        )
        self._drive.begin(ev.WorkflowStarted(definition.name, inputs))

    def __repr__(self) -> str:
        return f"<script of {self._machine.run.definition.name!r}: {self._state()}>"

    # -- looking --------------------------------------------------------------------------------

    @property
    def pending(self) -> dict[str, Pending]:
        """All that the run waits for, by path, in tree order."""
        return pending_of(self._drive)

    @property
    def events(self) -> list[ev.Event]:
        """Every event so far, in order."""
        return list(self._drive.events)

    @property
    def progress(self) -> list[ev.Progress]:
        """Every progress notice so far, in order."""
        return list(self._drive.progress)

    @property
    def results(self) -> dict[str, StepResult[Any]]:
        """The result of every step that has ended, by path, in order of end."""
        return dict(self._machine.run.results)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._options.run_id

    @property
    def now(self) -> float:
        """The script's time, in unix seconds."""
        return self._drive.now()

    @property
    def done(self) -> bool:
        """True if the run has ended or was suspended."""
        return self._drive.result is not None

    @property
    def result(self) -> WorkflowResult[R_co]:
        """How the run ended.

        Raises:
            AssertionError: the run has not ended; the text lists what it waits for.
        """
        result = self._drive.result
        if result is None:
            raise AssertionError(f"the run has not ended. {self._state()}")
        return result

    # -- steps ----------------------------------------------------------------------------------

    def expect(
        self,
        path: str,
        kind: str | None = None,
        *,
        agent: str | None = None,
        context: Mapping[str, Any] | None = None,
        args: tuple[Any, ...] | None = None,
        argv: str | Sequence[str] | None = None,
        attempt: int | None = None,
    ) -> Pending:
        """The step whose attempt is pending at this path, checked against the other arguments.

        ``kind`` is its verb in one word (``agent``, ``command``, ``stage``, ...), ``agent`` the
        name of its agent, ``context`` the whole context of that agent.
        """
        found = self._at(path, "attempt")
        checks = {"kind": kind, "agent": agent, "context": context, "args": args, "argv": argv}
        for what, wanted in {**checks, "attempt": attempt}.items():
            if wanted is not None:
                _check(found, what, wanted)
        return found

    def expect_rollback(self, path: str) -> Pending:
        """The pending rollback of the step at this path.

        End it with ``.returns()``, ``.fails(...)`` or ``.runs()``, which calls it for real.
        """
        return self._at(path, "rollback")

    # -- people and time ------------------------------------------------------------------------

    def answer(self, path: str, answer: Any, *, by: str | None = "script") -> None:
        """Answer the question at this path.

        Raises:
            InvalidAnswer: the answer does not fit the question; the gate stays open.
        """
        gate = self._at(path, "gate").gate
        assert gate is not None
        event = ev.GateAnswered(path, accept_answer(gate, answer), by)
        self._drive.record(event)

    def refuse(self, path: str, why: str = "nobody may answer it") -> None:
        """Fail the question at this path, as a gate policy without an answer does."""
        self._at(path, "gate")
        self._drive.report(cmd.GateRefused(path, GateRefusal(path, why), at=self.now))

    def signal(self, name: str, payload: Any = None, *, by: str | None = "script") -> None:
        """Deliver a signal; the run keeps it until a ``wait_for`` takes it."""
        self._must_go_on(f"get the signal {name!r}")
        self._drive.record(ev.SignalReceived(name, payload, by))

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass: sleeps, pauses, timeouts and deadlines on the way happen in order."""
        self._must_go_on("let time pass")
        self._drive.advance_to(self.now + seconds_of(seconds, "advance"))

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the run: pending attempts stop at once, and it unwinds."""
        self._must_go_on("be cancelled")
        self._drive.record(ev.CancelRequested(reason))

    def suspend(self, reason: str = "waiting") -> WorkflowResult[R_co]:
        """Suspend a run that waits only for questions, signals and time.

        An executor does the same if it gets no answer. The result says what is open.
        """
        self._must_go_on("be suspended")
        if self._drive.open_attempts:
            raise AssertionError(f"a run is suspended when no step is at work. {self._state()}")
        self._drive.report(cmd.CloseRun(reason, at=self.now))
        return self.result

    # -- ending ---------------------------------------------------------------------------------

    def finish(self) -> WorkflowResult[R_co]:
        """How the run ended.

        Raises:
            AssertionError: the run has not ended; the text lists what it waits for.
        """
        return self.result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:  # else the run has no end because of that error, which is reported
            self.finish()

    # -- inside ---------------------------------------------------------------------------------

    def _evaluate(self, command: cmd.AskPredicate | cmd.AskFallback | cmd.FindStages) -> Any:
        if isinstance(command, cmd.FindStages):
            return self._stages_of(command)
        value = self._evaluator.begin(command)
        return run_to_end(value, f"a predicate or handler of {command.path!r}")

    def _stages_of(self, command: cmd.FindStages) -> tuple[Stage, ...]:
        """Stages by name need no command here: the test says how they end."""
        names = [item for item in command.stages or () if isinstance(item, str)]
        known: dict[str, Any] = {name: Stage(name, name) for name in names}
        known.update(configured_stages())
        known.update(self._options.stages)
        return Evaluator(self._contexts, lambda: known, None).find_stages(command)

    def _build_context(self, open_attempt: OpenAttempt) -> None:
        command = open_attempt.command
        assert isinstance(command, cmd.Perform)
        verb = command.step.verb
        if isinstance(verb, Launching):
            assert command.view is not None
            made = built_context(verb.context, self._contexts.of(command.view))
            open_attempt.context = run_to_end(made, f"the context builder of {command.path!r}")

    def _at(self, path: str, waits: Waits) -> Pending:
        found = in_flight(self._drive, path)
        if found is not None and found.waits == waits:
            return found
        pending = self.pending
        found = pending.get(path)
        if found is None or found.waits != waits:
            raise AssertionError(self._not_there(path, waits, pending))
        return found

    def _not_there(self, path: str, waits: Waits, pending: Mapping[str, Pending]) -> str:
        found = pending.get(path)
        if found is not None:
            return f"{path!r} waits for something else ({found.description}): write {found.hint}"
        ended = self._machine.run.results.get(path)
        what = {"attempt": "step", "gate": "question"}.get(waits, waits)
        text = f"no {what} is pending at {path!r}"
        if ended is not None:
            text += f", it {ended.status} already"
        else:
            near = get_close_matches(path, pending, n=1)
            text += f" (did you mean {near[0]!r}?)" if near else ""
        return f"{text}. {self._state()}"

    def _must_go_on(self, what: str) -> None:
        if self.done:
            raise AssertionError(f"the run cannot {what}. {self._state()}")

    def _state(self) -> str:
        return describe_state(self._drive.result, self.pending)


def _check(found: Pending, what: str, wanted: Any) -> None:
    match what:
        case "agent":
            got: Any = getattr(found.agent, "name", found.agent)
        case "context":
            got = found.context()
        case "argv":
            got = found.argv
            wanted = wanted if isinstance(wanted, str) else tuple(wanted)
        case _:
            got = getattr(found, what)
    if got != wanted:
        raise AssertionError(f"{what} of {found.path!r}: expected {wanted!r}, got {got!r}")
