"""How long a program may take: chosen from what was seen of it, without a clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from handrail.agents.programs.turn_parser import Stop
from handrail.model.agent_options import AgentOptions
from handrail.system.live import EXIT_S

START_S = 60.0
IDLE_S = 300.0
TOOL_S = 1800.0
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a program may take: to its first sign of life, from one sign to the next,
    the same while a tool is at work, in all, and to exit once it has said that it is done, or has
    closed its stdout; and, if it can be asked to end its turn itself, for that.
    """

    start_s: float = START_S
    idle_s: float = IDLE_S
    tool_s: float = TOOL_S
    total_s: float | None = None
    grace_s: float = GRACE_S
    exit_s: float = EXIT_S
    interrupt_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen of a program: when it was started, last heard, and said to be done, all on one
    clock; how many of its tools are at work; how much longer than usual it asked to be silent.
    """

    started: float
    heard: float | None = None
    finished: float | None = None
    open_tools: int = 0
    extra_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a program is to be ended if nothing else is seen of it, and why.

    ``stop`` is None if it has said that it is done, and only needs to go. ``bound_s`` is the time
    that it had.
    """

    at: float
    stop: Stop | None
    bound_s: float = field(default=0.0, compare=False)


def patience_of(
    options: AgentOptions, *, grace_s: float = GRACE_S, interrupt_s: float = 0.0
) -> Patience:
    """The patience that the options ask for, else the usual one."""
    idle_s = _else(options.idle_timeout_s, IDLE_S)
    return Patience(
        start_s=_else(options.start_timeout_s, START_S),
        idle_s=idle_s,
        # Silence that is allowed to a thinking model is not too long for a tool at work.
        tool_s=_else(options.tool_timeout_s, max(TOOL_S, idle_s)),
        total_s=options.timeout_s,
        grace_s=grace_s,
        interrupt_s=interrupt_s,
    )


def deadline(patience: Patience, signs: Signs) -> Deadline:
    """When and why to end the program of which these signs were seen."""
    if signs.finished is not None:
        return Deadline(signs.finished + patience.grace_s, None)
    silence = _silence(patience, signs)
    if patience.total_s is None:
        return silence
    return min(
        silence,
        Deadline(signs.started + patience.total_s, "timeout", patience.total_s),
        key=lambda one: one.at,
    )


def _silence(patience: Patience, signs: Signs) -> Deadline:
    if signs.heard is None:
        return Deadline(signs.started + patience.start_s, "start_timeout", patience.start_s)
    usual_s = patience.tool_s if signs.open_tools else patience.idle_s
    bound_s = usual_s + signs.extra_s
    return Deadline(signs.heard + bound_s, "idle_timeout", bound_s)


def _else(given: float | None, usual: float) -> float:
    return usual if given is None else given
