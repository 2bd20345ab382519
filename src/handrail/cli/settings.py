"""What ``[tool.handrail]`` says of the runs of this command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail import Executor
from handrail.cli.exits import Refused
from handrail.cli.target import load_object
from handrail.model.agent_options import AgentOptions
from handrail.model.policy import NO_LIMITS, Budget, Ladder, Limits
from handrail.project import project_table

_TABLE = "[tool.handrail]"


def limits_of(
    *,
    max_steps: int | None = None,
    timeout: float | None = None,
    budget_usd: float | None = None,
    max_launches: int | None = None,
) -> Limits:
    """Limits of a run, from what is typed or written for it."""
    limits = NO_LIMITS if max_steps is None else Limits(max_steps=max_steps)
    if timeout is not None:
        limits = Limits(timeout_s=timeout).over(limits)
    if budget_usd is not None or max_launches is not None:
        limits = Limits(budget=Budget(usd=budget_usd, launches=max_launches)).over(limits)
    return limits


def project_limits(table: Mapping[str, Any]) -> Limits:
    """Those of the project."""
    names = ("max_steps", "timeout", "budget_usd", "max_launches")
    bounds = {name: table[name] for name in ("max_concurrency", "tags", "rates") if name in table}
    return Limits(**bounds).over(limits_of(**{n: table[n] for n in names if n in table}))


def labels_typed(words: Sequence[str], table: Mapping[str, Any]) -> dict[str, str]:
    """Labels of a run: the project's, and those that were typed as ``name=value``.

    Raises:
        Refused: one has no ``=``.
    """
    found = {name: str(value) for name, value in table.get("labels", {}).items()}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise Refused(f"--label {word}", "is not NAME=VALUE")
        found[name] = value
    return found


def project_executor(backend: str | None, model: str | None) -> Executor:
    """An executor as the project's table says, where no other was named."""
    table = project_table()
    ladder = table.get("ladder")
    instructions = table.get("instructions")
    services = table.get("services")
    try:
        return Executor(
            limits=project_limits(table),
            ladder=None if ladder is None else Ladder(**ladder),
            agent_options=AgentOptions(append_system_prompt=instructions),
            sinks=[load_object(name, f"{_TABLE} sinks")() for name in table.get("sinks", [])],
            services=None if services is None else load_object(services, f"{_TABLE} services")(),
            backend=backend,
            model=model,
        )
    except TypeError as error:
        raise Refused(f"{table['file']}: {_TABLE}", str(error)) from error
