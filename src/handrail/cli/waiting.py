"""What a run waits for, as the commands that give it that."""

from __future__ import annotations

from handrail.cli.journal import Place
from handrail.codec.unresolved import Unresolved
from handrail.model.results import OpenGate


def answers_to(run_id: str, gate: OpenGate, place: Place) -> str:
    """The command that answers a gate; with several choices, the first one and what else."""
    first, *others = _answers(gate)
    command = place.command("answer", run_id, gate.path, first)
    return f"{command}   (or {', '.join(others)})" if others else command


def signals_to(run_id: str, name: str, place: Place) -> str:
    """The command that sends a signal."""
    return place.command("signal", run_id, name)


def _answers(gate: OpenGate) -> list[str]:
    if gate.choices and not any(isinstance(one, Unresolved) for one in gate.choices):
        return [str(choice) for choice in gate.choices]
    return ["yes", "no"] if gate.type is bool else ["ANSWER"]
