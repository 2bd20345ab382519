"""Defaults; the only place that knows everyone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from handrail.engine.executor import Engine
from handrail.engine.parts import Parts
from handrail.errors import DefinitionError
from handrail.journals.memory import MemoryJournal
from handrail.model.policy import Limits, Secrets
from handrail.model.shapes import WorkflowLike
from handrail.ports.clock import Clock
from handrail.ports.journal import Journal
from handrail.ports.sink import Sink
from handrail.system.clock import SystemClock


class Executor(Engine):
    """Runs workflows, and reaches those that run or wait.

    ``journal``: where runs are recorded (default: in memory, for this executor alone). ``sinks``
    are shown every event. ``agents`` replaces agents by name. ``stages`` names commands or
    callables for ``validate``; those of ``[tool.handrail.stages]`` in ``pyproject.toml`` count
    too. ``services`` and ``config`` are shown to context builders. ``workflows`` are found by name
    on ``resume``. ``gates`` answers ``ask``: a callable that is given an ``OpenGate``, or a policy:
    ``"approve"``, ``"default"``, ``"fail"``; with none the run suspends, after ``linger_s``.
    Timers longer than ``suspend_timers_after_s`` suspend the run too (None: never).
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
        gates: Any = None,
        clock: Clock | None = None,
        linger_s: float = 0,
        suspend_timers_after_s: float | None = None,
        cleanup_timeout_s: float = 30,
        max_crashes: int = 5,
        secrets: Secrets | None = None,
        durable: bool = False,
    ) -> None:
        given = dict(stages or {})
        super().__init__(
            Parts(
                journal=journal if journal is not None else MemoryJournal(),
                clock=clock if clock is not None else SystemClock(),
                sinks=tuple(sinks),
                agents=dict(agents or {}),
                stages=lambda: {**configured_stages(), **given},
                services=dict(services or {}),
                config=dict(config or {}),
                workflows=tuple(workflows),
                limits=limits if limits is not None else Limits(),
                gates=gates,
                linger_s=linger_s,
                suspend_timers_after_s=suspend_timers_after_s,
                cleanup_timeout_s=cleanup_timeout_s,
                max_crashes=max_crashes,
                secrets=secrets if secrets is not None else Secrets(),
                durable=durable,
            )
        )


def configured_stages(start: Path | None = None) -> dict[str, Any]:
    """``[tool.handrail.stages]`` of the nearest ``pyproject.toml`` at or above a folder.

    Raises:
        DefinitionError: that file is not TOML, or a stage is neither text nor a list of texts.
    """
    folder = (start or Path.cwd()).resolve()
    for above in (folder, *folder.parents):
        file = above / "pyproject.toml"
        if file.is_file():
            return _stages_in(file)
    return {}


def _stages_in(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file} cannot be read as TOML: {error}") from None
    stages = table.get("tool", {}).get("handrail", {}).get("stages", {})
    for name, command in stages.items():
        words = cast("list[object]", command if isinstance(command, list) else [command])
        if not words or not all(isinstance(word, str) for word in words):
            raise DefinitionError(
                f"{file}: [tool.handrail.stages] {name} must be a command as text or a list of "
                f"texts, got {command!r}"
            )
    return dict(stages)
