"""The settings of ``[tool.handrail]`` for runs of this command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail import Executor, addons
from handrail.cli.bounds import limits_of
from handrail.cli.exits import Refused
from handrail.cli.inputs import pair
from handrail.cli.target import load_object
from handrail.errors import DefinitionError
from handrail.executor import ladder_of
from handrail.model.agent_options import AgentOptions
from handrail.model.policy import Limits
from handrail.project import project_table

_TABLE = "[tool.handrail]"


def project_limits(table: Mapping[str, Any]) -> Limits:
    """The limits in the project's table."""
    names = ("max_steps", "timeout", "budget_usd", "max_launches")
    bounds = {name: table[name] for name in ("max_concurrency", "tags", "rates") if name in table}
    return Limits(**bounds).over(limits_of(**{n: table[n] for n in names if n in table}))


def parse_labels(words: Sequence[str], table: Mapping[str, Any]) -> dict[str, str]:
    """Labels of a run: the project's, and those that were typed as ``name=value``.

    Raises:
        Refused: one has no ``=``.
    """
    found = {name: str(value) for name, value in table.get("labels", {}).items()}
    for word in words:
        name, text = pair(word, f"--label {word}", "NAME=VALUE")
        found[name] = text
    return found


def project_executor(backend: str | None, model: str | None) -> Executor:
    """An executor as the project's table describes it, for runs without a named one."""
    table = project_table()
    instructions = table.get("instructions")
    services = table.get("services")
    try:
        return Executor(
            limits=project_limits(table),
            ladder=ladder_of(table.get("ladder", {}), table["file"]),
            agent_options=AgentOptions(append_system_prompt=instructions),
            sinks=[_sink(name) for name in table.get("sinks", [])],
            services=None if services is None else load_object(services, f"{_TABLE} services")(),
            backend=backend,
            model=model,
        )
    except TypeError as error:
        raise Refused(f"{table['file']}: {_TABLE}", str(error)) from error
    except DefinitionError as error:
        if not table["file"] or str(error).startswith(table["file"]):
            raise
        raise Refused(f"{table['file']}: {_TABLE}", str(error)) from error


def _sink(name: str) -> Any:
    """The sink of ``module:factory``, or the one that a package has registered by this name."""
    if name in addons.names(addons.SINKS):
        return addons.load(addons.SINKS, name)()
    return load_object(name, f"{_TABLE} sinks")()
