"""``handrail doctor``: what is here, what is missing, what to do about it. No model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial

import anyio

from handrail.agents.doctoring import PROBE_S, Named, probe_all
from handrail.cli.channels import json_channel, write_json
from handrail.cli.doctor_checks import (
    Check,
    check_backend,
    check_extras,
    check_git,
    check_journal,
    check_python,
)
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.errors import HandrailError
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS
from handrail.ports.agent import AgentBackend

_HEADINGS = ("CHECK", "STATE", "VERSION", "WHERE")


def doctor(
    place: Place,
    *,
    as_json: bool,
    backends: Sequence[Named] | None = None,
    timeout_s: float = PROBE_S,
) -> int:
    """Print how everything stands; 1 if something is missing without which nothing runs."""
    with json_channel(wanted=as_json) as data:
        checks = anyio.run(partial(_look, place, backends, timeout_s))
        problems = [check.name for check in checks if check.problem]
        if data is not None:
            write_json({"ok": not problems, "checks": [asdict(check) for check in checks]}, data)
    if not as_json:
        _print_checks(checks)
        print(f"to be seen to: {', '.join(problems)}" if problems else "ready to run")
    return Exit.FAILED if problems else Exit.SUCCEEDED


async def _look(place: Place, backends: Sequence[Named] | None, timeout_s: float) -> list[Check]:
    settings, refused = _asked_for()
    wanted, model = settings
    named = _known(model) if backends is None else backends
    checks = [check_python(), check_journal(place), await check_git(timeout_s), *refused]
    probed = await probe_all(named, timeout_s)
    checks += [check_backend(one, wanted=one.name == wanted) for one in probed]
    return [*checks, *check_extras()]


def _asked_for() -> tuple[tuple[str | None, str | None], list[Check]]:
    """The backend and model that the environment or the project names; what is wrong with that."""
    try:
        settings = agent_defaults(None, None, NO_OPTIONS)
    except HandrailError as error:
        advice = " ".join(str(error).split())
        return (None, None), [Check(name="settings", ok=False, state="wrong", advice=advice)]
    if not isinstance(settings.backend, str):
        return (None, None), []
    name, _, model = settings.backend.partition(":")
    return (name, model or settings.options.model), []


def _known(model: str | None) -> list[Named]:
    """Every backend there is. One that needs a model to say more is told the one asked for."""
    from handrail.agents.routes import backend_names, make_backend

    def make(name: str) -> AgentBackend:
        if name == "api" and model is not None:
            from handrail.agents.api.backend import ApiBackend

            return ApiBackend(model)
        return make_backend(name)

    return [(name, partial(make, name)) for name in backend_names()]


def _print_checks(checks: Iterable[Check]) -> None:
    """A line for each, and below it what to do about it."""
    checks = list(checks)
    rows = [(one.name, one.state, one.version or "", one.where or "") for one in checks]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    print(_line(_HEADINGS, widths))
    for row, check in zip(rows, checks, strict=True):
        print(_line(row, widths))
        if check.advice:
            print(f"{'':{widths[0]}}  -> {check.advice}")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
