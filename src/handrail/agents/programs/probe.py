"""What is known of an agent's program on this machine, without asking a model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anyio

from handrail.errors import CommandNotFound
from handrail.ports.agent import Probe
from handrail.system.run import CommandNotStarted, run_process

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+][\w.+-]*\w)?")
_ANSWER_S = 20.0


async def probe_program(
    executable: str,
    env: Mapping[str, str],
    *,
    logged_in: Callable[[Mapping[str, str]], bool | None],
    install: str,
    login: str,
) -> Probe:
    """Whether a program is there, its version, and whether it has a login.

    ``env`` is its whole environment; ``logged_in`` finds out from it and from files alone.
    ``install`` and ``login`` are commands, for the advice.
    """
    where = shutil.which(executable, path=env.get("PATH"))
    if where is None:
        return Probe(found=False, advice=f"Install it: {install}")
    version = await _version(where, env)
    if version is None:
        return Probe(
            found=True, where=where, advice=f"`{executable} --version` fails. Reinstall: {install}"
        )
    known = logged_in(env)
    advice = f"Log in: {login}" if known is False else ""
    return Probe(found=True, version=version, where=where, logged_in=known, advice=advice)


def home_of(env: Mapping[str, str]) -> Path:
    """The home folder in this environment."""
    return Path(env.get("HOME") or Path.home())


def json_file(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


async def _version(where: str, env: Mapping[str, str]) -> str | None:
    with anyio.move_on_after(_ANSWER_S):
        try:
            said = await run_process(
                [where, "--version"], marker=f"probe-{uuid4().hex}", env=env, limit_bytes=4096
            )
        except (CommandNotFound, CommandNotStarted):
            return None
        found = _VERSION.search(said.stdout) if said.exit_code == 0 else None
        return found[0] if found else None
    return None
