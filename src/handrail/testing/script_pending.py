"""What a scripted run waits for: an entry for each path, with which a test can end it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from typing import (
    Any,
    Literal,
    TypeAlias,
    TypeGuard,
    TypeVar,
    assert_never,
)

from handrail.agents.fake import is_like
from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event, rollback_event, success_event
from handrail.engine.current import CURRENT, Current
from handrail.errors import CommandFailed
from handrail.model import events as ev
from handrail.model.context import WorkflowContext
from handrail.model.results import (
    AgentResult,
    CommandResult,
    OpenGate,
    StageFailed,
    StageResult,
    Usage,
    WorkflowResult,
)
from handrail.steps.judging import stage_result, takes_one
from handrail.steps.leaves import (
    AgentCall,
    Generation,
    PythonCall,
    ShellCommand,
    StageCheck,
    TreeWork,
)
from handrail.steps.verbs import Step, Verb
from handrail.steps.waits import SignalWait
from handrail.testing.script_drive import Drive, NeedsEventLoop, OpenAttempt, run_to_end
from handrail.typed.convert import fit_json
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import describe_type

_SHOWN = 20


def describe(entry: Pending, now: float) -> str:
    """What the run waits for: ``agent 'planner', attempt 2``, ``sleep, 60 s left``."""
    match entry.waits:
        case "attempt":
            tried = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
            return f"{entry.kind}{_of_whom(entry)}{tried}"
        case "rollback":
            return "rollback"
        case "gate":
            return f"question {entry.gate.question!r}" if entry.gate is not None else "question"
        case "signal":
            return f"signal {entry.signal!r}"
        case "pause":
            what = "sleep" if entry.kind == "sleep" else f"{entry.kind}, before another attempt"
            return f"{what}, {_seconds_left(entry, now):g} s left"
        case _:
            assert_never(entry.waits)


def next_line(entry: Pending, now: float) -> str:
    """The line with which a test continues: ``script.expect('plan').returns(...)``."""
    match entry.waits:
        case "attempt":
            end = {"stage": "passes()", "git": "returns()"}.get(entry.kind, "returns(...)")
            return f"script.expect({entry.path!r}).{end}"
        case "rollback":
            return f"script.expect_rollback({entry.path!r}).returns()"
        case "gate":
            return f"script.answer({entry.path!r}, ...)"
        case "signal":
            return f"script.signal({entry.signal!r}, ...)"
        case "pause":
            return f"script.advance({_seconds_left(entry, now):g})"
        case _:
            assert_never(entry.waits)


def _seconds_left(entry: Pending, now: float) -> float:
    return max(0.0, (entry.due or 0.0) - now)


def _of_whom(entry: Pending) -> str:
    if isinstance(entry.verb, TreeWork):
        return f", to {entry.verb.action} the worktree"
    subject = entry.verb.subject()
    return "" if subject is None else f" {subject!r}"


def describe_state(result: WorkflowResult[Any] | None, pending: Mapping[str, Pending]) -> str:
    """The state of the run as text: its end, or what it waits for and how a test continues."""
    if result is not None:
        why = f": {result.error}" if result.error else ""
        return f"The run {_ended(result.status)}{why}"
    if not pending:
        return "It waits for nothing that a script could give."
    width = min(40, max(len(path) for path in pending))
    lines = [
        f"  {path:<{width}}  {entry.description}  ->  {entry.hint}"
        for path, entry in list(pending.items())[:_SHOWN]
    ]
    if len(pending) > _SHOWN:
        lines.append(f"  ... and {len(pending) - _SHOWN} more")
    return "Pending:\n" + "\n".join(lines)


def _ended(status: str) -> str:
    return f"was {status}" if status in {"suspended", "cancelled"} else f"has {status}"


V = TypeVar("V")
Waits: TypeAlias = Literal["attempt", "rollback", "gate", "signal", "pause"]


class Pending:
    """Something that a scripted run waits for, at ``path``.

    ``waits`` says for what. This object ends an ``attempt`` or a ``rollback``; for a ``gate``, a
    ``signal`` or a ``pause`` the script has ``answer``, ``signal`` and ``advance``. ``step`` is the
    step as the workflow wrote it; ``due`` is when its time is up (unix seconds), if it has a time.
    """

    def __init__(
        self,
        path: str,
        step: Step[Any],
        waits: Waits,
        drive: Drive,
        *,
        open_attempt: OpenAttempt | None = None,
        gate: OpenGate | None = None,
        due: float | None = None,
    ) -> None:
        self.path = path
        self.step = step
        self.waits: Waits = waits
        self.gate = gate
        self.due = due
        self._drive = drive
        self._open_attempt = open_attempt

    def __repr__(self) -> str:
        return f"<pending {self.path!r}: {self.description}>"

    # -- looking --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name

    @property
    def verb(self) -> Verb:
        """The step's verb: ``ShellCommand``, ``AgentCall`` and so on, with all its arguments."""
        return self.step.verb

    @property
    def kind(self) -> str:
        """The verb in one word: ``python``, ``command``, ``agent``, ``stage``, ``ask``, ..."""
        return self.step.verb.kind

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        command = self._open_attempt.command if self._open_attempt is not None else None
        return command.attempt if isinstance(command, cmd.Perform) else 1

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments of a ``call`` or ``python`` step."""
        return self._verb_of(PythonCall, "args").args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments of a ``call`` or ``python`` step."""
        return self._verb_of(PythonCall, "kwargs").kwargs or {}

    @property
    def argv(self) -> str | tuple[str, ...]:
        """The program and its arguments of a ``command`` step, or the text for the shell."""
        return self._verb_of(ShellCommand, "argv").argv

    @property
    def agent(self) -> Any:
        """The agent of an ``agent`` step; the agent or function of a ``generate`` step."""
        match self.verb:
            case AgentCall(agent=agent) | Generation(generator=agent):
                return agent
            case _:
                raise self._has_no("agent")

    def context(self) -> Mapping[str, Any]:
        """The agent's context: the step's mapping, or the one that its context builder made."""
        if self._open_attempt is None or self._open_attempt.context is None:
            raise self._has_no("context")
        return self._open_attempt.context

    @property
    def workflow(self) -> WorkflowContext:
        """The ``WorkflowContext`` that the step's functions get."""
        view = self._open_attempt.command.view if self._open_attempt is not None else None
        if view is None:
            raise self._has_no("workflow context")
        return self._drive.contexts.of(view)

    @property
    def signal(self) -> str:
        """The name of the signal that a ``wait_for`` step waits for."""
        return self._verb_of(SignalWait, "signal").signal

    @property
    def description(self) -> str:
        """What the run waits for, for people."""
        return describe(self, self._drive.now())

    @property
    def hint(self) -> str:
        """The line with which a test continues."""
        return next_line(self, self._drive.now())

    # -- ending ---------------------------------------------------------------------------------

    def returns(self, value: Any = None, *, usage: Usage | None = None) -> None:
        """End the attempt with this output; nothing is called.

        An ``agent`` step wraps it in an ``AgentResult`` unless it is one; a ``command`` step takes
        a ``CommandResult``, or the stdout of a command that exits with 0; a rollback takes None.
        """
        match self.verb:
            case _ if self.waits == "rollback":
                self._end(rollback_event(self.path))
            case AgentCall(answers=answers):
                result = value if _is_agent_result(value) else AgentResult(value, usage)
                self._check_output(result.output)
                self._succeed(result.output if answers else result, result.usage)
            case ShellCommand() if isinstance(value, str):
                self.exits(0, value)
            case ShellCommand() if not isinstance(value, CommandResult):
                raise AssertionError(
                    f"{self._which()} returns a CommandResult, or text for its stdout, "
                    f"got {value!r}. For another exit code write .exits(code, stdout, stderr)."
                )
            case Generation() if not isinstance(value, str):
                raise AssertionError(f"{self._which()} writes text, got {value!r}")
            case StageCheck():
                raise AssertionError(
                    f"{self._which()} passes or fails: write .passes(), or .fails('2 failed')"
                )
            case _:
                self._succeed(value, usage)

    def _check_output(self, output: Any) -> None:
        """Check the output's type, as ``FakeAgent`` does.

        An agent without an output type answers with text, and a test may use anything instead.
        """
        wanted = getattr(self.agent, "output", Any)
        if wanted is not str and not is_like(output, wanted):
            raise AssertionError(
                f"{self._which()} has output={describe_type(wanted, fields=False)}, got "
                f"{short_repr(output)}, which is of type {type(output).__name__}. Write "
                f".returns(...) with a value of that type, which is used as it is."
            )

    def fails(self, error: BaseException | type[BaseException] | str) -> None:
        """End the attempt with this exception, instance or class; a stage also takes a text.

        Retries, ``on_error`` and ``default`` follow as in a run; a failure that they do not handle
        is thrown at the ``yield`` as ``StepFailed``.
        """
        error = self._exception(error)
        if self.waits == "rollback":
            self._end(rollback_event(self.path, error))
        else:
            self._end(failure_event(self._perform(), error))

    def passes(self, output: str = "") -> None:
        """Let a stage of ``validate`` pass, having printed ``output``."""
        stage = self._verb_of(StageCheck, "passes()").stage
        self._succeed(StageResult(stage.name, passed=True, output=output), None)

    def exits(self, code: int = 0, stdout: str = "", stderr: str = "") -> None:
        """End a command with this exit code; ``check`` and ``parse`` apply as in a run."""
        verb = self._verb_of(ShellCommand, "exits()")
        if verb.check and code != 0:
            argv = verb.argv if isinstance(verb.argv, str) else " ".join(verb.argv)
            self.fails(CommandFailed(repr(argv), code, stdout, stderr))
            return
        try:
            data = None if verb.parse is None else fit_json(stdout, verb.parse)
        except Exception as error:  # noqa: BLE001  # stdout is not what parse asks for
            self.fails(error)
            return
        self._succeed(CommandResult(code, stdout, stderr, data), None)

    def runs(self) -> None:
        """Call the action for real, here and now, and end the attempt with its outcome.

        For ``call`` and ``python`` steps, callable stages and rollbacks.
        """
        self._still_pending()
        action, arguments, named = self._action()
        try:
            value = self._call(action, arguments, named)
        except NeedsEventLoop:
            raise
        except Exception as error:  # noqa: BLE001  # whatever an action raises fails its step
            self.fails(error)
            return
        if self.waits == "rollback":
            self.returns()
        elif self.kind == "stage":
            self._judge(value)
        else:
            self.returns(value)

    def _call(
        self, action: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        context = contextvars.copy_context()
        context.run(CURRENT.set, Current(self._drive.contexts.run_id, self.path, self.attempt))
        value = context.run(action, *arguments, **named)
        return run_to_end(value, f"the action of {self.path!r}", context)

    def _action(self) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
        command = self._open_attempt.command if self._open_attempt is not None else None
        if isinstance(command, cmd.Undo):
            return command.rollback.action, (self.workflow,), {}
        match self.verb:
            case PythonCall(action=action):
                return action, self.args, self.kwargs
            case StageCheck(stage=stage) if callable(stage.check):
                return stage.check, (self.workflow,) if takes_one(stage.check) else (), {}
            case _:
                raise AssertionError(
                    f"{self._which()} has nothing that a script can run: say what it gives, "
                    f"{self.hint}"
                )

    def _judge(self, value: Any) -> None:
        result = stage_result(self.name, value)
        if result.passed:
            self._succeed(result, None)
        else:
            self._end(failure_event(self._perform(), StageFailed(result)))

    def _succeed(self, output: Any, usage: Usage | None) -> None:
        self._end(success_event(self._perform(), output, usage, self._drive.now()))

    def _exception(self, error: BaseException | type[BaseException] | str) -> BaseException:
        if isinstance(error, str):
            if self.kind != "stage" or self.waits == "rollback":
                raise AssertionError(
                    f"{self._which()} fails with an exception, got the text {error!r}. "
                    f"Write .fails(RuntimeError({error!r}))."
                )
            return StageFailed(StageResult(self.name, passed=False, output=error, error=error))
        return error() if isinstance(error, type) else error

    def _perform(self) -> cmd.Perform:
        command = self._open_attempt.command if self._open_attempt is not None else None
        if isinstance(command, cmd.Perform):
            return command
        raise self._is_no_attempt()

    def _end(self, event: ev.Event) -> None:
        self._still_pending()
        self._drive.end_attempt(self.path, event)

    def _still_pending(self) -> None:
        if self._open_attempt is None:
            raise self._is_no_attempt()
        if self._drive.open_attempts.get(self.path) is not self._open_attempt:
            raise AssertionError(f"{self._which()} has ended already, or was stopped")

    # -- errors ---------------------------------------------------------------------------------

    def _which(self) -> str:
        return f"{self.path!r} ({self.description})"

    def _verb_of(self, wanted: type[V], what: str) -> V:
        if not isinstance(self.verb, wanted):
            raise self._has_no(what)
        return self.verb

    def _is_no_attempt(self) -> AssertionError:
        return AssertionError(f"{self._which()} is no attempt: write {self.hint}")

    def _has_no(self, what: str) -> AssertionError:
        return AssertionError(f"{self._which()} has no {what}")


def _is_agent_result(value: object) -> TypeGuard[AgentResult[Any]]:
    return isinstance(value, AgentResult)
