"""The parts of an engine, checks of an executor's arguments, and where a drive begins."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from handrail.engine.claiming import SharedClaims
from handrail.engine.perform import Around, FolderOf
from handrail.errors import DefinitionError, RunIdTaken, WrongUse
from handrail.later import later
from handrail.model import events as ev
from handrail.model.agent_options import (
    CONTEXT_MODES,
    NO_SETTINGS,
    AgentOptions,
    AgentSettings,
)
from handrail.model.dataclass import dataclass
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import defined_at
from handrail.model.policy import Budget, Ladder, Limits, count_of, seconds_of, word_of
from handrail.model.sandbox import Boundary, boundary_of
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal
from handrail.record.run_record import Recorded
from handrail.secrets.values import Secrets, SecretValues
from handrail.typed.jsonsafe import short_repr

if TYPE_CHECKING:
    from handrail.codec.codec import Codec
    from handrail.engine.shared_limits import SharedAdmission
    from handrail.ports.claims import Claims
    from handrail.ports.clock import Clock
    from handrail.ports.sink import Sink
    from handrail.record import dropped, reading
else:
    later(globals(), "record.dropped record.reading")


GATE_POLICIES = ("approve", "default", "fail", "ask")

AgentCheck: TypeAlias = Callable[[Any, AgentSettings, Callable[[], AgentSettings] | None], None]
"""Raises if an agent would be refused with a step's settings and the run's defaults. The third
argument gives those defaults; None: judge by the step's own settings alone."""


OnChange: TypeAlias = Literal["refuse", "reuse", "rerun"]
"""What a resume does with recorded steps that the code describes differently now."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything an engine is made of."""

    journal: Journal
    clock: Clock
    sinks: tuple[Sink, ...] = ()
    shared: SharedAdmission | None = None
    around: tuple[Around, ...] = ()
    on_change: OnChange = "refuse"
    agents: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stages: Callable[[], Mapping[str, Any]] = dict
    services: Mapping[str, Any] = field(default_factory=dict[str, Any])
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    workflows: tuple[WorkflowLike[..., Any], ...] = ()
    limits: Limits = Limits()
    gates: Any = None
    linger_s: float = 0.0
    suspend_timers_after_s: float | None = None
    cleanup_timeout_s: float = 30.0
    max_crashes: int = 5
    secrets: Secrets = Secrets()
    durable: bool = False
    portable: bool = False
    identity: str = field(default_factory=lambda: os.urandom(4).hex())
    """Distinguishes its runs from others of the same id, if the journal has no identity."""
    agent_defaults: Callable[[], AgentSettings] = lambda: NO_SETTINGS
    """The default settings of agents; computed when first needed."""
    check_agent: AgentCheck | None = None
    folder_of_agent: FolderOf | None = None
    sandbox: Callable[[], Boundary] = lambda: None
    """The sandbox of commands and stages without one of their own; computed when first needed."""
    claims: Claims | None = None
    """The port that grants claims; None: the claims of this machine."""
    shared_claims: SharedClaims = field(default_factory=SharedClaims)
    """The claims of this machine, if its drives use them."""


@dataclass(frozen=True, slots=True)
class Leased:
    """A run leased to this engine: the secrets of its record, and since when (unix seconds)."""

    secrets: SecretValues
    since: float


@dataclass(frozen=True, slots=True)
class DriveStart:
    """Where a drive begins: with an empty record, or behind one of ``seq`` events.

    ``letters``: messages that came since. ``cancel``: why the run is to be cancelled at once.
    ``last_at``: when the last event was recorded.
    """

    definition: WorkflowDefinition
    run_id: str
    inputs: dict[str, Any]
    first: ev.Event
    recorded: Recorded = field(default_factory=lambda: Recorded(()))
    seq: int = 0
    letters: tuple[ev.Event, ...] = ()
    cancel: str | None = None
    last_at: float = -math.inf


def check_parts(parts: Parts) -> None:
    """Raise if an executor's arguments are wrong."""
    check_callers_parts(parts.gates, parts.sinks, parts.workflows)
    for name, agent in parts.agents.items():
        if not callable(getattr(agent, "run", None)):
            raise WrongUse(f"agents[{name!r}] must be an agent, got {agent!r}")


def check_callers_parts(
    gates: object, sinks: Iterable[Sink], workflows: Iterable[WorkflowLike[..., Any]]
) -> None:
    """Raise if one of the arguments is wrong that are a caller's also where others perform."""
    if gates is not None and not callable(gates) and gates not in GATE_POLICIES:
        raise DefinitionError(
            f"gates is a callable that is given an OpenGate, or one of "
            f"{', '.join(GATE_POLICIES)}, got {gates!r}"
        )
    for sink in sinks:
        if not callable(getattr(sink, "emit", None)) or isinstance(sink, type):
            raise WrongUse(f"a sink is an object with a method emit(event), got {sink!r}")
        if iscoroutinefunction(sink.emit):
            raise WrongUse(
                f"emit of a sink is called and not awaited, so that of {sink!r} cannot be async. "
                f"Put the event into a queue there, and await in a task of your own."
            )
    named: dict[str, Any] = {}
    for workflow in workflows:
        definition = workflow.definition
        first = named.setdefault(definition.name, definition)
        if first is not definition:
            raise _of_one_name(first, definition)


def check_paths(**given: object) -> None:
    """Raise if a path was given where a list of paths is expected."""
    for name, value in given.items():
        if isinstance(value, str):
            raise WrongUse(f"{name}= takes a list of paths, such as [{value!r}], got {value!r}")


def _of_one_name(one: WorkflowDefinition, other: WorkflowDefinition) -> WrongUse:
    return WrongUse(
        f"two workflows are named {one.name!r} ({defined_at(one.function)} and "
        f"{defined_at(other.function)}): a run is resumed by its workflow's name. "
        f'Name one of them: @workflow(name="...").'
    )


def _written_in(definition: WorkflowDefinition) -> set[str]:
    """The workflow's module and file: a command may load the same file under another name."""
    code = getattr(definition.function, "__code__", None)
    return {definition.function.__module__, getattr(code, "co_filename", "")}


def definition_of(
    workflow: Any, known: Iterable[WorkflowLike[..., Any]] = (), *, begins: bool = False
) -> WorkflowDefinition:
    """The definition of a workflow.

    It may have the name of a ``known`` workflow only as a later version of that: from the same
    module or file. Where a run ``begins``, which a resume will find by that name alone, it must
    also be the same function.

    Raises:
        WrongUse: it is no workflow, or another has its name; the text says what to write.
    """
    definition = getattr(workflow, "definition", None)
    if isinstance(definition, WorkflowDefinition):
        name = definition.function.__qualname__
        for own in (workflow.definition for workflow in known):
            if own.name == definition.name and own is not definition:
                is_other = begins and own.function.__qualname__ != name
                if is_other or not _written_in(own) & _written_in(definition):
                    raise _of_one_name(own, definition)
        return definition
    if isinstance(workflow, str):
        raise WrongUse(
            f"{short_repr(workflow)} is a text, not a workflow: pass the function "
            f"decorated with @workflow itself. A run id comes before it: resume(run_id, workflow)"
        )
    name = getattr(workflow, "__name__", None) or short_repr(workflow)
    raise WrongUse(
        f"{name} is not a workflow: decorate the generator function with @workflow, and pass the "
        f"function itself, without calling it"
    )


def new_run_id(name: str, now: float, is_taken: Callable[[str], object]) -> str:
    """A readable run id that sorts by time: the workflow's name, the UTC date and time to the
    second, and eight random hex digits. If the id is taken, it draws other digits.

    Raises:
        RunIdTaken: a hundred ids were taken.
    """
    at, run_id = datetime.fromtimestamp(now, UTC).strftime("%y%m%d-%H%M%S"), ""
    for _ in range(100):
        run_id = f"{name}-{at}-{os.urandom(4).hex()}"
        if not is_taken(run_id):
            return run_id
    raise RunIdTaken(run_id)


_MAPPINGS = {
    "agents": "a mapping of names to agents, such as {'worker': agent}",
    "stages": "a mapping of names to commands or functions, such as {'lint': 'ruff check'}",
    "services": "a mapping of names to objects, such as {'db': db}",
    "config": "a mapping of names to settings, such as {'style': 'terse'}",
}
_LISTS = {
    "around": "a list of functions that make an async context manager, such as [span_of]",
    "sinks": "a list of sinks, such as [ConsoleSink()]",
    "workflows": "a list of workflows, such as [ship]",
}
_KNOWN_BY = {
    "journal": (("append", "acquire", "events"), "a journal, such as SqliteJournal('runs.db')"),
    "claims": (("acquire", "release", "is_held"), "a keeper of claims, such as LocalClaims()"),
    "clock": (("now", "wait", "sleep"), "a clock, such as handrail.testing.JumpClock()"),
    "cassette": (("wrap",), "a cassette, such as handrail.testing.cassette('recordings')"),
}
"""The methods of a part, and what to pass."""
_OF_CLASS: Mapping[str, tuple[type, str]] = {
    "limits": (Limits, "Limits(...), such as Limits(max_steps=1000)"),
    "shared_limits": (Limits, "Limits(...), such as Limits(max_concurrency=10)"),
    "secrets": (Secrets, "Secrets(...), such as Secrets(names=('DB_URL',))"),
    "agent_options": (AgentOptions, "AgentOptions(...)"),
    "model": (str, "the name of a model"),
    "durable": (bool, "True or False"),
    "portable": (bool, "True or False"),
    "ladder": (Ladder, "Ladder(...), such as Ladder(crash_retries=5)"),
}
_BOUNDS = {"sandbox": boundary_of}
_SECONDS = ("linger_s", "suspend_timers_after_s", "cleanup_timeout_s")
_CHECKED_ELSEWHERE = frozenset({"self", "__class__", "gates", "backend"})


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check that the arguments of ``Executor``, by name, are of the right kinds; None: not given.

    Raises:
        WrongUse: one is of another kind; the text says what to pass.
        DefinitionError: a time or a count is out of its range.
    """
    for name, value in given.items():
        if value is None or name in _CHECKED_ELSEWHERE:
            continue
        if name in _MAPPINGS:
            _check_mapping(name, value)
        elif name in _LISTS:
            _check_list(name, value)
        elif name in _BOUNDS:
            _BOUNDS[name](value, f"{name} of an Executor")
        elif name == "linger_s" and value == math.inf:
            continue  # until an answer comes
        elif name in _SECONDS:
            seconds_of(value, f"{name} of an Executor")
        elif name == "on_change":
            if value not in get_args(OnChange):
                raise WrongUse(f'on_change= takes "refuse", "reuse" or "rerun", got {value!r}')
        elif name == "context_mode":
            word_of(value, f"{name} of an Executor", CONTEXT_MODES)
        elif name == "max_crashes":
            count_of(value, f"{name} of an Executor")
        else:
            _check_part(name, value)


def files_of_journal(journal: Journal) -> tuple[Path, ...]:
    """The files of a journal that is one file and others beside it; none for other journals."""
    path = getattr(journal, "path", None)
    if not isinstance(path, Path):
        return ()
    return tuple(path.with_name(f"{path.name}{end}") for end in ("", "-wal", "-shm", "-journal"))


def _check_mapping(name: str, value: object) -> None:
    wanted = _MAPPINGS[name]
    if not isinstance(value, Mapping):
        raise _wrong(name, wanted, value)
    for key in cast("Mapping[object, object]", value):
        if not isinstance(key, str):
            raise _wrong(name, wanted, key)


def _check_list(name: str, value: object) -> None:
    wanted = _LISTS[name]
    if not _is_list(value):
        raise _wrong(name, wanted, value)
    if name == "workflows" and isinstance(value, Collection):
        for item in cast("Collection[object]", value):
            if not isinstance(getattr(item, "definition", None), WorkflowDefinition):
                raise _wrong(name, wanted, item)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _check_part(name: str, value: object) -> None:
    if name == "limits" and isinstance(value, Budget):
        raise WrongUse(
            "limits= of an Executor takes Limits(...), got a Budget. "
            "Write limits=Limits(budget=Budget(...))."
        )
    if name in _OF_CLASS:
        kind, wanted = _OF_CLASS[name]
        known = isinstance(value, kind)
    else:
        methods, wanted = _KNOWN_BY[name]
        has_all = all(callable(getattr(value, method, None)) for method in methods)
        known = has_all and not isinstance(value, type)
    if not known:
        raise _wrong(name, wanted, value)


def _wrong(name: str, wanted: str, got: object) -> WrongUse:
    return WrongUse(f"{name}= of an Executor takes {wanted}, got {short_repr(got)}")


def start_after(
    history: Sequence[ev.Event],
    definition: WorkflowDefinition,
    codec: Codec,
    *,
    letters: Sequence[ev.Event] = (),
    late: int = 0,
    reuse: Sequence[str] = (),
    rerun: Sequence[str] = (),
    cancel: str | None = None,
    recorded: Recorded | None = None,
) -> DriveStart:
    """Where the next drive of this history begins. ``letters``: messages that came since. ``late``:
    the number of the last that came too late for the last drive. ``cancel``: why the run only
    unwinds. ``recorded`` has taken the history already; this function closes it.

    Raises:
        NotRecorded, WrongUse, Unresolvable, DefinitionError: as ``Executor.resume``.
    """
    run_id = history[0].run_id
    for number, event in enumerate(letters, len(history) + 2):
        ev.stamp(event, run_id, number, event.at)
    if recorded is None:
        recorded = Recorded(history)
    half_way = dropped.cancelled_half_way(recorded)
    recorded.take(letters)
    cancel = cancel or recorded.cancel
    unwinds = cancel is not None
    gone = half_way if unwinds else reading.dropped(recorded, reuse, rerun)
    recorded.close(gone)
    reading.refuse_partially_compensated(recorded, run_id, rerun)
    recorded.read_messages(late)
    recorded.reused.update(reuse)
    recorded.unwinds = unwinds
    recorded.run_again(rerun)
    inputs = reading.inputs_of(recorded, definition, codec)
    reading.refuse_without_inputs(run_id, definition, inputs)
    return DriveStart(
        definition,
        run_id,
        inputs,
        ev.RunResumed(gone, tuple(reuse), tuple(rerun), definition.name, late),
        recorded,
        len(history),
        tuple(letters),
        cancel,
        history[-1].at,
    )
