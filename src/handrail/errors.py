"""Every public error, under one base.

An error says what happened (with its values), why, and what to do. All arguments go to
``super().__init__`` and the text is rendered in ``__str__``, so that an error survives pickle and
copy with its parts as attributes.

Errors that carry a result or a failed launch are defined beside these (``model.results``,
``model.launch``). They can be imported from here and from ``handrail``, like all others.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from handrail.shortening import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

AgentErrorKind: TypeAlias = Literal[
    "rate_limit",  # too many requests for the moment
    "usage_cap",  # the plan's window is used up; it opens again by itself
    "spending_cap",  # money or credits are used up; a person must act
    "context_overflow",  # the conversation does not fit the model
    "auth",  # not logged in, or not allowed; a person must act
    "transient",  # a server or connection failed; the same again may work
    "bad_request",  # the request itself is wrong: unknown model, invalid schema
    "invalid_output",  # the answer does not fit the output type
    "max_turns",  # the agent used up its turns
    "output_limit",  # the answer was cut at the model's output limit
    "refusal",  # the model declined
    "timeout",  # no first sign of life, none for too long, or too long in all
    "interrupted",  # stopped by a signal or a person
    "crashed",  # the program ended without saying that the work is done
    "not_installed",  # the program or library is not there
    "config",  # the program did not accept its options
]
"""Why a backend gave no answer, in words that are the same for all of them."""


class HandrailError(Exception):
    """Base of every error that handrail raises on purpose."""


class RunCancelled(BaseException):
    """Thrown into a workflow at its ``yield`` when its run, or its group, is being cancelled.

    A ``BaseException``, so that ``except Exception`` does not swallow a cancellation. Steps that
    the body yields while it unwinds (in ``except`` and ``finally``) still run, within
    ``cleanup_timeout_s``.
    """

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class DefinitionError(HandrailError, ValueError):
    """A step, policy or workflow was described with values that cannot work."""


class WrongUse(HandrailError, TypeError):
    """A call of the library's own functions with arguments of the wrong kind."""


class WorkflowError(HandrailError):
    """Raise it in a workflow's body to end the run as failed, with a reason for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class WorkflowMistake(HandrailError):
    """Base of mistakes in a workflow's code; they end the run and are never thrown into it."""


class NotAStep(WorkflowMistake):
    """A workflow yielded something that is not a finished step."""

    def __init__(
        self, got: str, where: str, hint: str, rule: str = "a workflow must yield steps"
    ) -> None:
        super().__init__(got, where, hint, rule)
        self.got = got
        self.where = where
        self.hint = hint
        self.rule = rule

    def __str__(self) -> str:
        said = f"{self.where}: {self.rule}, got {self.got}"
        return f"{said}. {self.hint}" if self.hint else said


class DuplicateStepName(WorkflowMistake):
    """Two steps of one scope have the same name, or two members of a group the same key."""

    def __init__(self, path: str, where: str, hint: str) -> None:
        super().__init__(path, where, hint)
        self.path = path
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: the path {self.path!r} is already taken in this run. {self.hint}"


_FLAGS = {"max_steps": "--max-steps", "timeout_s": "--timeout"}
"""Options of the command that set a limit."""


class LimitExceeded(HandrailError):
    """A limit of the run was reached; ``name`` is a field of ``Limits``, ``value`` its setting."""

    def __init__(self, name: str, value: float, why: str = "") -> None:
        super().__init__(name, value, why)
        self.name = name
        self.value = value
        self.why = why

    def __str__(self) -> str:
        flag = _FLAGS.get(self.name)
        return f"{self.what} Raise it in Limits(...){f', or with {flag}' if flag else ''}."

    @property
    def what(self) -> str:
        """Which limit, and where, without what to do about it."""
        why = f": {self.why.rstrip('.')}" if self.why else ""
        stop = "" if why.endswith("?") else "."
        return f"the run reached its limit {self.name}={self.value:g}{why}{stop}"


class InvalidInput(HandrailError, ValueError):
    """An input of a workflow is missing, unknown, or not of its parameter's type.

    ``what`` names the kind of value, where somebody passes another one, such as a step's output.
    """

    def __init__(self, parameter: str, got: str, expected: str, what: str = "input") -> None:
        super().__init__(parameter, got, expected, what)
        self.parameter = parameter
        self.got = got
        self.expected = expected
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} {self.parameter!r}: got {self.got}, expected {self.expected}"


class OutputNotSerializable(HandrailError):
    """A value of a durable run cannot be recorded so that an equal value is read back."""

    def __init__(self, where: str, field: str, why: str) -> None:
        super().__init__(where, field, why)
        self.where = where
        self.field = field
        self.why = why

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.field} cannot be recorded: {self.why}. Return plain data "
            f"(builtins, a dataclass, attrs, msgspec.Struct), declare the type it should come back "
            f"as, or give the journal a Codec with a TypeCodec for it."
        )


@dataclass(frozen=True, slots=True)
class StepChange:
    """A recorded step that the code now describes differently: its description then and now.

    ``enters``: to run it again is to enter it, and to keep what is the same in it.
    """

    path: str
    was: str
    now: str
    enters: bool = field(default=False, compare=False, repr=False)

    @property
    def rerun_path(self) -> str:
        """What ``rerun`` is given for it: ``pages/`` enters ``pages`` again."""
        return f"{self.path}/" if self.enters else self.path

    def __str__(self) -> str:
        return f"step {self.path!r} was {self.was}, is {self.now}"


class ReplayMismatch(HandrailError):
    """Recorded steps changed since they were recorded; ``changes`` lists each one.

    ``late``: a change showed only after the resume had run other steps. These are recorded, and
    the run is suspended. Otherwise nothing was run.
    """

    def __init__(
        self,
        run_id: str,
        changes: Sequence[StepChange],
        *,
        late: bool = False,
        passed: Collection[str] = (),
    ) -> None:
        super().__init__(run_id, tuple(changes))
        self.run_id = run_id
        self.changes = tuple(changes)
        self.late = late
        self.passed = passed
        """The paths that the code had reached before the first change."""
        self.hint = ""
        """Why a step may be another one although the code is the same, if that is known."""

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.changes))
        return (
            f"run {self.run_id}: the code no longer matches the record: {listed}. Resume with "
            f"reuse=[path] (--reuse PATH) to keep a recorded output or rerun=[path] (--rerun PATH) "
            f"to run the step again; "
            f"{_LATE if self.late else _EARLY}.{self.hint}"
        )


_EARLY = "nothing was run, and the record is unchanged"
_LATE = "steps that ran before this was found are recorded, and the run is suspended"


class RunLocked(HandrailError):
    """Another process drives this run."""

    def __init__(self, run_id: str, pid: int, host: str, age_s: float) -> None:
        super().__init__(run_id, pid, host, age_s)
        self.run_id = run_id
        self.pid = pid
        self.host = host
        self.age_s = age_s

    def __str__(self) -> str:
        if (self.pid, self.host) == (os.getpid(), os.uname().nodename):
            return (
                f"run {self.run_id} is being driven by this same process (since {self.age_s:.0f} "
                f"s), in another task or thread. Wait for that drive to end."
            )
        return (
            f"run {self.run_id} is being driven by process {self.pid} on {self.host} "
            f"(since {self.age_s:.0f} s). Stop it first, or let it finish."
        )


class LeaseLost(HandrailError):
    """Another process took over the run that this one drove; this one stored nothing more."""

    def __init__(self, run_id: str, pid: int, host: str) -> None:
        super().__init__(run_id, pid, host)
        self.run_id = run_id
        self.pid = pid
        self.host = host

    def __str__(self) -> str:
        who = f"process {self.pid} on {self.host}" if self.pid else "another one, which has ended"
        return (
            f"run {self.run_id} was taken over by {who}, because this process did not renew its "
            f"lease in time. It stops and records nothing more."
        )


class ClaimTimeout(HandrailError, TimeoutError):
    """A step did not get a claim in time; ``holders`` names who has it, or is ahead in line."""

    def __init__(
        self, claimant: str, what: str, seconds: float, holders: Sequence[str] = ()
    ) -> None:
        super().__init__(claimant, what, seconds, tuple(holders))
        self.claimant = claimant
        self.what = what
        self.seconds = seconds
        self.holders = tuple(holders)

    def __str__(self) -> str:
        within = f" within {self.seconds:g} s" if self.seconds else " at once"
        whose = f", behind {', '.join(self.holders)}" if self.holders else ""
        return (
            f"{self.claimant} did not get {self.what}{within}{whose}. Wait longer, or end the "
            f"holder; `handrail claims` lists all claims."
        )


class ClaimDeadlock(HandrailError):
    """Waiting for a claim would close a circle; ``circle`` has a sentence for each waiter."""

    def __init__(self, claimant: str, what: str, circle: Sequence[str]) -> None:
        super().__init__(claimant, what, tuple(circle))
        self.claimant = claimant
        self.what = what
        self.circle = tuple(circle)

    def __str__(self) -> str:
        return (
            f"{self.claimant} cannot wait for {self.what}: it would wait for itself. "
            f"{'; '.join(self.circle)}. Take all needed claims in one step, or in the same order "
            f"everywhere."
        )


class ClaimLost(HandrailError):
    """A step lost its claim before it was done; its work was not merged.

    ``epoch`` is the lost claim's. ``holder`` names who has the claim now; empty if nobody has.
    """

    usage: Any = None
    """The usage of the agent until then, if an agent lost the claim."""

    def __init__(self, claimant: str, what: str, epoch: int, holder: str = "") -> None:
        super().__init__(claimant, what, epoch, holder)
        self.claimant = claimant
        self.what = what
        self.epoch = epoch
        self.holder = holder

    def __str__(self) -> str:
        now = f", and {self.holder} has it now" if self.holder else ""
        return (
            f"{self.claimant} lost its claim of {self.what} (epoch {self.epoch}){now}: its process "
            f"was stopped for too long, or the claim was released. Nothing was merged, and files "
            f"of other claims were left alone. Run the step again."
        )


class ClaimsFailed(HandrailError):
    """The store of a repository's claims could not be opened, read or written."""

    def __init__(self, store: str, doing: str, why: str, hint: str = "") -> None:
        super().__init__(store, doing, why, hint)
        self.store = store
        self.doing = doing
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"claims {self.store}: {self.doing} failed: {self.why}.{hint}"


class JournalFailed(HandrailError):
    """A journal could not be opened, read or written; ``why`` is what the system said."""

    def __init__(self, journal: str, doing: str, why: str, hint: str = "") -> None:
        super().__init__(journal, doing, why, hint)
        self.journal = journal
        self.doing = doing
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"journal {self.journal}: {self.doing} failed: {self.why}.{hint}"


class JournalDamaged(JournalFailed):
    """A journal's content is not what was written to it; handrail trusts none of it.

    ``readable`` has the events before the damage, if that is within one run: enough for a fork.
    """

    readable: Sequence[Any] = ()


class DamagedExport(HandrailError):
    """A file of an exported run is not as it was written; nothing of it was imported."""

    def __init__(
        self,
        file: str,
        line: int,
        why: str,
        instead: str = "Export the run again, or copy the file again from where it is whole",
    ) -> None:
        super().__init__(file, line, why, instead)
        self.file = file
        self.line = line
        self.why = why
        self.instead = instead

    def __str__(self) -> str:
        whole = {1: "", 2: "The line before it is whole. "}.get(
            self.line, f"The {self.line - 1} lines before it are whole. "
        )
        return (
            f"{self.file}, line {self.line}: {self.why}. {whole}Nothing was imported. "
            f"{self.instead}."
        )


class OutputChanged(HandrailError):
    """An action changed in place the value that an earlier step of a durable run returned."""

    def __init__(self, path: str, owner: str, field: str) -> None:
        super().__init__(path, owner, field)
        self.path = path
        self.owner = owner
        self.field = field

    def __str__(self) -> str:
        return (
            f"step {self.path!r} changed in place what step {self.owner!r} returned: its output"
            f"{self.field}. The change is not recorded, so a resumed run would use the old value. "
            f"Change a copy, and return it."
        )


class StepWasInterrupted(HandrailError):
    """A ``.once()`` step began in an earlier drive, and has no recorded success that counts.

    The process may have ended while the step was at work, or the step was rolled back.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"step {self.path!r} has started before without a recorded success that counts, and "
            f".once() forbids running it again. Find out whether it took effect; if not, resume "
            f"with rerun=[{self.path!r}] (--rerun)."
        )


class StepIsPoisonous(HandrailError):
    """The process died ``crashes`` times while this step was at work, so it is not run again."""

    def __init__(self, path: str, crashes: int) -> None:
        super().__init__(path, crashes)
        self.path = path
        self.crashes = crashes

    def __str__(self) -> str:
        return (
            f"the process died {self.crashes} times while step {self.path!r} was running, so the "
            f"step is not run again. Find out what kills it, then resume with "
            f"rerun=[{self.path!r}] (--rerun) to try once more."
        )


class NotRecorded(HandrailError):
    """The run has no recorded step at a path that was named."""

    def __init__(self, run_id: str, path: str, known: Sequence[str] = ()) -> None:
        super().__init__(run_id, path, tuple(known))
        self.run_id = run_id
        self.path = path
        self.known = tuple(known)

    def __str__(self) -> str:
        near = f" Did you mean {' or '.join(map(repr, self.known))}?" if self.known else ""
        return f"run {self.run_id} has no recorded step {self.path!r}.{near}"


class RunNotFound(HandrailError):
    """The journal has no run of this id."""

    def __init__(self, run_id: str, known: Sequence[str] = ()) -> None:
        super().__init__(run_id, tuple(known))
        self.run_id = run_id
        self.known = tuple(known)

    def __str__(self) -> str:
        known = f" It has: {', '.join(self.known[-5:])}." if self.known else " It has no runs."
        return f"there is no run {self.run_id!r} in this journal.{known}"


class CannotSteer(HandrailError):
    """A run or step cannot be steered in this way; ``instead`` says what can be done."""

    def __init__(self, run_id: str, why: str, instead: str = "") -> None:
        super().__init__(run_id, why, instead)
        self.run_id = run_id
        self.why = why
        self.instead = instead

    def __str__(self) -> str:
        return f"run {self.run_id!r}: {self.why}{f'. {self.instead}' if self.instead else ''}"


class RunIdTaken(HandrailError):
    """The id for a new run belongs to a run that the journal already has."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id

    def __str__(self) -> str:
        return f"run {self.run_id!r} already exists. Resume it, or choose another id."


class InputsDiffer(HandrailError):
    """An existing run was requested with an input that differs from the recorded one.

    ``recorded`` and ``given`` are texts for people.
    """

    def __init__(self, run_id: str, name: str, recorded: str, given: str) -> None:
        super().__init__(run_id, name, recorded, given)
        self.run_id = run_id
        self.name = name
        self.recorded = recorded
        self.given = given

    def __str__(self) -> str:
        return (
            f"run {self.run_id} was started with {self.name}={self.recorded}, not {self.given}. "
            f"Give the same inputs, or another run id."
        )


class WorkflowNotFound(HandrailError):
    """A run cannot be resumed, because its workflow is not known here."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        super().__init__(name, tuple(known))
        self.name = name
        self.known = tuple(known)

    def __str__(self) -> str:
        known = f" (known: {', '.join(self.known)})" if self.known else ""
        return (
            f"the workflow {self.name!r} of this run is not known here{known}. Pass it to "
            f"resume(), or list it in Executor(workflows=[...])."
        )


class GateClosed(HandrailError):
    """A gate was answered already; ``answer``, ``by`` and ``at`` (unix seconds) say how.

    ``by`` is ``timeout`` if its deadline has passed; the answer is then its default, or None.
    """

    def __init__(self, gate: str, answer: Any, by: str | None, at: float) -> None:
        super().__init__(gate, answer, by, at)
        self.gate = gate
        self.answer = answer
        self.by = by
        self.at = at

    def __str__(self) -> str:
        if self.by == "timeout":
            default = "" if self.answer is None else f", so it got its default, {self.answer!r}"
            return f"gate {self.gate!r} is closed: nobody answered it in time{default}"
        who = f" by {self.by}" if self.by else ""
        return f"gate {self.gate!r} is closed: it was answered{who} with {self.answer!r}"


class InvalidAnswer(HandrailError, ValueError):
    """An answer does not fit its gate's choices or type; the gate stays open."""

    def __init__(self, gate: str, answer: Any, expected: str) -> None:
        super().__init__(gate, answer, expected)
        self.gate = gate
        self.answer = answer
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"gate {self.gate!r}: {self.answer!r} is not a valid answer, expected {self.expected}"
        )


class InvalidSignal(HandrailError, ValueError):
    """A signal's payload does not fit the ``wait_for`` that is open; the signal was not sent."""

    def __init__(self, signal: str, payload: Any, expected: str) -> None:
        super().__init__(signal, payload, expected)
        self.signal = signal
        self.payload = payload
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"signal {self.signal!r}: {self.payload!r} is not what the run waits for, expected "
            f"{self.expected}. It was not sent."
        )


class GateRefusal(HandrailError):
    """A gate gets no answer: the executor's ``gates=`` policy has none, or the input ended."""

    def __init__(self, gate: str, why: str) -> None:
        super().__init__(gate, why)
        self.gate = gate
        self.why = why

    def __str__(self) -> str:
        return f"gate {self.gate!r} got no answer: {self.why}"


class GateNotFound(HandrailError):
    """The run never opened a gate at this path."""

    def __init__(self, run_id: str, gate: str, open_gates: Sequence[str] = ()) -> None:
        super().__init__(run_id, gate, tuple(open_gates))
        self.run_id = run_id
        self.gate = gate
        self.open_gates = tuple(open_gates)

    def __str__(self) -> str:
        known = f" Open: {', '.join(self.open_gates)}." if self.open_gates else " No gate is open."
        return f"run {self.run_id} has no gate {self.gate!r}.{known}"


class NotPortable(HandrailError):
    """A part of a step exists only in this process and cannot be performed elsewhere.

    ``part`` is ``action``, ``args[0].lock`` and the like; ``where`` is the ``file:line`` of the
    code that names it, if that is known.
    """

    def __init__(self, path: str, part: str, why: str = "", where: str = "") -> None:
        super().__init__(path, part, why, where)
        self.path = path
        self.part = part
        self.why = why
        self.where = where

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        why = self.why or "it is not importable by name"
        instead = (
            "Define that at the top level of a module, or pass what is needed to build it there"
        )
        if self.part == "claim":
            instead = "Do in one step what must be held together, or run it on one machine"
        return (
            f"{place}step {self.path!r} cannot leave this process, because of its {self.part} "
            f"({why}). {instead}"
        )


class CodeNotFound(HandrailError):
    """This process cannot find a function, class or object that a step names."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        module = self.name.partition(":")[0]
        return (
            f"{self.name} cannot be found here ({self.why}). Start the worker where module "
            f"{module!r} can be imported, in the version that the run started with"
        )


class HubFailed(HandrailError):
    """A hub or its file cannot be used; ``hub`` is its place, ``why`` completes the sentence."""

    def __init__(self, hub: str, why: str, hint: str = "") -> None:
        super().__init__(hub, why, hint)
        self.hub = hub
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        hint = f" {self.hint}." if self.hint else ""
        return f"hub {self.hub} {self.why}.{hint}"


class MissingExtra(HandrailError, ImportError):
    """An optional library is needed; the text names the extra that brings it."""

    def __init__(self, who: str, library: str, extra: str) -> None:
        super().__init__(who, library, extra)
        self.who = who
        self.library = library
        self.extra = extra

    def __str__(self) -> str:
        return f'{self.who} needs {self.library}: pip install "handrail[{self.extra}]"'


class InsideEventLoop(HandrailError, RuntimeError):
    """The sync form of a call was used where an event loop already runs."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(name, instead)
        self.name = name
        self.instead = instead

    def __str__(self) -> str:
        return (
            f"{self.name} was called inside a running event loop, which it would block. "
            f"{self.instead}"
        )


class TooEarly(HandrailError, RuntimeError):
    """A streamed run was asked for its result before its end, or was steered before its start."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(run_id, why)
        self.run_id = run_id
        self.why = why

    def __str__(self) -> str:
        return f"run {self.run_id} {self.why}"


class StepTimeout(HandrailError, TimeoutError):
    """A step did not end within its ``.timeout(seconds)``."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(path, seconds)
        self.path = path
        self.seconds = seconds

    def __str__(self) -> str:
        return f"step {self.path!r} did not end within its timeout of {self.seconds:g} s"


class CancelledFromWithin(HandrailError):
    """An attempt was cancelled, but not by its run: something that it awaited was cancelled."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"step {self.path!r} was cancelled from within: something it awaited was cancelled"


class CoreStalled(HandrailError):
    """The core waits for nothing and has not ended; a defect in handrail."""

    def __str__(self) -> str:
        return (
            "the run can neither continue nor end. This is a defect in handrail, please report it."
        )


class CommandFailed(HandrailError):
    """A command ended with an exit code other than 0 under ``check=True``."""

    def __init__(self, argv: str, exit_code: int, stdout: str, stderr: str) -> None:
        super().__init__(argv, exit_code, stdout, stderr)
        self.argv = argv
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr

    def __str__(self) -> str:
        tail = shortened(self.stderr.strip() or self.stdout.strip(), 2000, keep="tail", mark="")
        said = f": {tail}" if tail else " and printed nothing"
        return f"command {self.argv} exited with {self.exit_code}{said}"


class CommandNotFound(HandrailError, FileNotFoundError):
    """The program of a command is not on PATH, or its working directory is not there."""

    def __init__(self, program: str, why: str) -> None:
        super().__init__(program, why)
        self.program = program
        self.why = why

    def __str__(self) -> str:
        return f"cannot start {self.program!r}: {self.why}"


class NotClean(HandrailError):
    """A result was required to be clean, but steps used defaults; ``paths`` are these steps."""

    def __init__(self, of: str, paths: Sequence[str]) -> None:
        super().__init__(of, tuple(paths))
        self.of = of
        self.paths = tuple(paths)

    def __str__(self) -> str:
        return (
            f"the result of {self.of!r} is not clean: the default was used at "
            f"{', '.join(self.paths)}. Their results tell what failed."
        )


class BudgetExceeded(HandrailError):
    """An agent was not launched, because a budget does not allow it.

    ``scope`` is the path of the step that has the budget, empty for the run's; ``name`` is the
    bound. ``next`` is the estimate that had to be reserved for the launch.
    """

    def __init__(
        self,
        scope: str,
        name: str,
        used: float,
        limit: float,
        next: float = 0.0,  # noqa: A002
    ) -> None:
        super().__init__(scope, name, used, limit, next)
        self.scope = scope
        self.name = name
        self.used = used
        self.limit = limit
        self.next = next

    def __str__(self) -> str:
        of = f"of step {self.scope!r}" if self.scope else "of the run"
        if self.name == "unknown":
            one = self.used == 1
            who = "1 launch of an agent" if one else f"{self.used:g} launches of agents"
            return (
                f"{who} did not report {'its' if one else 'their'} usage, so the budget {of} "
                f"cannot limit such launches."
            )
        return (
            f"the budget {of} does not allow another launch of an agent: "
            f"{self.name} {self.used:g} of {self.limit:g} used or reserved"
            + (f", and it is expected to use {self.next:g}." if self.next else ".")
        )


def did_you_mean(names: Iterable[str], known: Sequence[str]) -> str:
    """`` Did you mean 'lint'?`` for the names that are close to a known one, else nothing."""
    from difflib import get_close_matches

    near: dict[str, None] = {}
    for name in names:
        near.update(dict.fromkeys(get_close_matches(name, known, n=1)))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


class StagesMissing(HandrailError):
    """A ``validate`` step has no stage, or names one that is not configured."""

    def __init__(self, path: str, names: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(path, tuple(names), tuple(known))
        self.path = path
        self.names = tuple(names)
        self.known = tuple(known)

    def __str__(self) -> str:
        known = f"Known: {', '.join(self.known)}." if self.known else "None is configured."
        what = f"the stages {', '.join(self.names)}" if self.names else "at least one stage"
        near = did_you_mean(self.names, self.known)
        return (
            f"step {self.path!r} needs {what}.{near} {known} Configure them in "
            f"[tool.handrail.stages] of pyproject.toml, in Executor(stages={{...}}), or pass "
            f"Stage(name, command)."
        )


class NoArmChosen(HandrailError):
    """No predicate of a ``branch`` was true, or one did not return a bool."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"branch {self.path!r}: {self.why}"


class GroupFailed(HandrailError):
    """A group could not be run, or too few of its members succeeded."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"group {self.path!r}: {self.why}"


_BESIDE_WHAT_THEY_CARRY = frozenset({
    "AgentError", "AnswerRejected", "NotReady", "PromptError", "SandboxUnavailable",
    "StageFailed", "StepFailed", "ValidationFailed", "WorkflowFailed",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return an error that is defined beside what it carries; pickle looks here for it, too."""
    if name in _BESIDE_WHAT_THEY_CARRY:
        return getattr(sys.modules["handrail"], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
