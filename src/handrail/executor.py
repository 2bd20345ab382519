"""``Executor``: an engine assembled from the parts you pass, and from defaults for the others.

Its behaviour comes from ``engine``: ``engine.engine.Engine`` begins, resumes and plans runs;
``engine.steering`` and ``engine.serving`` reach existing runs. Unlike ``engine``, this module may
import the adapters: agents, journals and sinks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import attrs

from handrail.engine.parts import OnChange, Parts, check_arguments
from handrail.engine.perform import Around
from handrail.engine.serving import ServingEngine
from handrail.journals.memory import MemoryJournal
from handrail.later import later
from handrail.model.agent_options import (
    NO_OPTIONS,
    AgentOptions,
    AgentSettings,
    ContextMode,
    with_model,
)
from handrail.model.policy import Backoff, Ladder, Limits
from handrail.model.sandbox import Boundary, sandbox_in
from handrail.model.shapes import WorkflowLike
from handrail.ports.clock import Clock
from handrail.ports.journal import Journal
from handrail.secrets.values import Secrets
from handrail.system.clock import SystemClock

if TYPE_CHECKING:
    from handrail import project
    from handrail.agents import agent as launching
    from handrail.agents.cassette.cassette import Cassette
    from handrail.engine import shared_limits as sharing
    from handrail.ports.agent import AgentBackend
    from handrail.ports.claims import Claims
    from handrail.ports.sink import Sink
else:
    later(globals(), "project agents.agent:launching engine.shared_limits:sharing")


class Executor(ServingEngine):
    """Runs workflows, and reaches runs that are at work or wait.

    - ``journal``: where runs are recorded (default: in memory, for this executor alone).
      ``sinks`` receive every event. ``workflows`` are found by name on ``resume``.
    - ``agents`` replaces agents by name. ``stages`` names commands or callables for ``validate``,
      besides those of ``[tool.handrail.stages]`` in ``pyproject.toml``. Context builders see
      ``services`` and ``config``.
    - ``limits`` bound each run, ``shared_limits`` (``max_concurrency``, ``tags`` and ``rates``) all
      runs of the executor together.
    - ``gates`` answers ``ask``: a callable that takes an ``OpenGate``, or one of ``"ask"`` (whoever
      is at the terminal), ``"approve"``, ``"default"``, ``"fail"``. Without it the run suspends,
      after ``linger_s``. Timers longer than ``suspend_timers_after_s`` suspend the run too (None:
      never).
    - ``backend``, ``model`` and ``agent_options`` apply to agents where neither the agent nor its
      step sets them. Their own defaults are ``HANDRAIL_BACKEND`` and ``HANDRAIL_MODEL``, then
      ``backend`` and ``model`` in ``[tool.handrail]`` of ``pyproject.toml``. ``ladder`` applies to
      agents without a ladder; without it, variables such as ``HANDRAIL_LADDER_CAP_WAIT_S`` do.
      ``context_mode`` applies to agents without one. ``cassette`` records agents, or replays them.
    - ``around``: factories that make an async context manager from the ``Current``. Each attempt
      runs inside of these, in its own context.
    - ``on_change`` says what a resume does with recorded steps that the code now describes
      differently: ``"refuse"`` raises ``ReplayMismatch``, ``"reuse"`` keeps their record,
      ``"rerun"`` runs them again.
    - ``portable`` requires that another machine could perform every step: code by its name, values
      as data (else ``NotPortable``).
    - ``sandbox`` is put around agents, commands and stages that have none of their own (default:
      ``sandbox`` in ``[tool.handrail]``): a ``Sandbox``, or True for one that follows from each.
    - ``claims`` keeps runs, people and programs out of one another's way (default: the claims of
      this machine, in each repository).
    """

    def __init__(
        self,
        *,
        journal: Journal | None = None,
        sinks: Sequence[Sink] = (),
        agents: Mapping[str, Any] | None = None,
        stages: Mapping[str, Any] | None = None,
        services: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        workflows: Sequence[WorkflowLike[..., Any]] = (),
        limits: Limits | None = None,
        shared_limits: Limits | None = None,
        gates: Any = None,
        clock: Clock | None = None,
        linger_s: float = 0,
        suspend_timers_after_s: float | None = None,
        cleanup_timeout_s: float = 30,
        max_crashes: int = 5,
        secrets: Secrets | None = None,
        durable: bool = False,
        portable: bool = False,
        backend: AgentBackend | str | None = None,
        model: str | None = None,
        agent_options: AgentOptions = NO_OPTIONS,
        cassette: Cassette | None = None,
        ladder: Ladder | None = None,
        context_mode: ContextMode | None = None,
        around: Sequence[Around] = (),
        on_change: OnChange = "refuse",
        claims: Claims | None = None,
        sandbox: Boundary = None,
    ) -> None:
        check_arguments(locals())  # before any other name is set
        given = dict(stages or {})
        _checked_options(backend, model, agent_options)
        secrets = secrets if secrets is not None else Secrets()
        boundary = cache(
            lambda: sandbox_in(project.project_table()) if sandbox is None else sandbox
        )
        super().__init__(
            Parts(
                journal=journal if journal is not None else MemoryJournal(),
                clock=clock if clock is not None else SystemClock(),
                sinks=tuple(sinks),
                shared=None if shared_limits is None else sharing.shared_admission(shared_limits),
                agents=dict(agents or {}),
                stages=lambda: {**project.configured_stages(), **given},
                services=dict(services or {}),
                config=dict(config or {}),
                workflows=tuple(workflows),
                limits=limits if limits is not None else Limits(),
                around=tuple(around),
                on_change=on_change,
                gates=gates,
                linger_s=linger_s,
                suspend_timers_after_s=suspend_timers_after_s,
                cleanup_timeout_s=cleanup_timeout_s,
                max_crashes=max_crashes,
                secrets=secrets,
                durable=durable or portable,
                portable=portable,
                agent_defaults=cache(
                    lambda: attrs.evolve(
                        agent_defaults(backend, model, agent_options, boundary()),
                        replace_backend=None
                        if cassette is None
                        else partial(cassette.wrap, secrets=secrets),
                        ladder=ladder or ladder_of({}),
                        context_mode=context_mode,
                    )
                ),
                check_agent=_check_agent,
                folder_of_agent=_folder_of_agent,
                sandbox=boundary,
                claims=claims,
            )
        )


def _check_agent(*given: Any) -> None:
    launching.check_launchable(*given)  # loaded when the first agent is checked


def _folder_of_agent(*given: Any) -> Any:
    return launching.launch_folder(*given)


def _checked_options(
    backend: AgentBackend | str | None,
    model: str | None,
    options: AgentOptions,
    whose: str = "Executor(backend=)",
    whose_options: str = "Executor(agent_options=)",
) -> AgentOptions:
    """The options of an executor, with its model; raises what is wrong with them or its backend."""
    options = with_model(model, options, "Executor")
    if backend is not None:
        from handrail.agents.routes import check_backend, check_options

        check_backend(backend, whose)
        check_options(backend, options, whose_options)
    return options


def agent_defaults(
    backend: AgentBackend | str | None,
    model: str | None,
    options: AgentOptions,
    sandbox: Boundary = None,
) -> AgentSettings:
    """The run's settings for agents: the arguments, else the environment's, else the project's.

    Raises:
        DefinitionError: there is no backend of this name, or ``pyproject.toml`` is malformed.
        WrongUse: ``backend`` is no backend.
    """
    whose = "Executor(backend=)"
    asks_for_model = model is None and options.model is None
    if backend is None or asks_for_model:
        for where, said_backend, said_model in _surrounding_settings():
            if backend is None and said_backend:
                backend, whose = said_backend, where
            if asks_for_model and model is None and _is_for(said_backend, backend):
                model = said_model
    options = _checked_options(backend, model, options, whose, whose)
    return AgentSettings(backend, options.over(AgentOptions(sandbox=sandbox)))


_LADDER = "HANDRAIL_LADDER_"


def ladder_of(table: Mapping[str, Any], file: str = "") -> Ladder | None:
    """The ladder of a project's table, with the fields that variables set; None without any field.

    ``HANDRAIL_LADDER_CAP_WAIT_S=600`` sets one: to JSON, or to a word such as ``probe``.

    Raises:
        DefinitionError: a ladder, or its ``backoff``, has no such field, or not of this value.
    """
    said = dict(table)
    for variable, text in os.environ.items():
        if variable.startswith(_LADDER) and text:
            name = variable.removeprefix(_LADDER).lower()
            said[name] = text
            with suppress(ValueError):
                said[name] = json.loads(text)
    backoff = said.get("backoff")
    tables: tuple[tuple[Any, Any, str], ...] = (Ladder, said, ""), (Backoff, backoff, " backoff")
    for cls, given, which in tables:
        known = [field.name for field in attrs.fields(cls)]
        names = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else ()
        for name in names:
            if name not in known:
                where = file if name in table or which else f"the environment ({_LADDER}...)"
                raise project.no_such_key(where, f"[tool.handrail.ladder]{which}", str(name), known)
    if isinstance(backoff, Mapping):
        said["backoff"] = Backoff(**cast("Mapping[str, Any]", backoff))
    return Ladder(**said) if said else None


def _surrounding_settings() -> Iterator[tuple[str, str | None, str | None]]:
    """Source, backend and model: first from the environment, then from the project."""
    variables = os.environ
    yield (
        "HANDRAIL_BACKEND",
        variables.get("HANDRAIL_BACKEND") or None,
        variables.get("HANDRAIL_MODEL") or None,
    )
    table = project.project_table()
    where = "[tool.handrail] backend of pyproject.toml"
    yield where, table.get("backend") or None, table.get("model") or None


def _is_for(said: str | None, chosen: AgentBackend | str | None) -> bool:
    """True unless a model was configured beside a backend other than the chosen one."""
    if said is None or chosen is None:
        return True
    name = chosen if isinstance(chosen, str) else chosen.name
    return said.partition(":")[0] == name.partition(":")[0]
