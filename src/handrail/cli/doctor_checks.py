"""What handrail finds on this machine: one record for each thing that it looks at."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, TypeAlias
from uuid import uuid4

import anyio

from handrail.agents.doctoring import Probed
from handrail.cli.exits import Refused
from handrail.cli.journal import VARIABLE, Place
from handrail.errors import HandrailError, JournalFailed
from handrail.ports.agent import Probe
from handrail.system.run import run_process

Kind: TypeAlias = Literal["machine", "backend", "library"]

_OLDEST = (3, 11)
_EXTRAS = {"jinja2": "agents", "rich": "cli", "pydantic-ai-slim": "api"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    ``ok``: it can be used. ``needed``: nothing runs without it. ``state`` says how it stands in a
    word or two, ``advice`` what to do.
    """

    name: str
    kind: Kind = "machine"
    ok: bool
    needed: bool = True
    state: str
    version: str | None = None
    where: str | None = None
    logged_in: bool | None = None
    advice: str = ""

    @property
    def problem(self) -> bool:
        """True if nothing runs before somebody has seen to it."""
        return self.needed and not self.ok


def check_python() -> Check:
    """The Python that runs this."""
    ok = sys.version_info[:2] >= _OLDEST
    return Check(
        name="python",
        ok=ok,
        state="ok" if ok else "too old",
        version=platform.python_version(),
        where=sys.executable,
        advice="" if ok else f"Install Python {'.'.join(map(str, _OLDEST))} or newer.",
    )


def check_journal(place: Place) -> Check:
    """The folder in which runs are recorded, tried out by writing into it, or where it would be."""
    folder = place.folder
    try:
        place.is_there()
        there = next(above for above in (folder, *folder.parents) if os.path.lexists(above))
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"handrail")
        if place.file.exists() and not os.access(place.file, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place.file))
    except OSError as error:
        said = error.strerror or str(error)
        advice = f"{said}. Make it writable, or name another folder with --dir or {VARIABLE}."
        return Check(
            name="journal", ok=False, state="not writable", where=str(folder), advice=advice
        )
    except Refused as error:
        return Check(
            name="journal",
            ok=False,
            state="not writable",
            where=error.what,
            advice=f"It {error.why}. {error.hint}",
        )
    if place.is_there():
        return _opened(place)
    state = "ok" if there == folder else "ok (to be made)"
    return Check(name="journal", ok=True, state=state, where=str(folder))


def _opened(place: Place) -> Check:
    """The journal that is there, as all commands read it."""
    where = str(place.folder)
    try:
        runs = place.find().runs()
    except JournalFailed as error:
        return Check(name="journal", ok=False, state="not readable", where=where, advice=str(error))
    damaged = [run.run_id for run in runs if run.damaged]
    if not damaged:
        return Check(name="journal", ok=True, state="ok", where=where)
    state = f"ok, but for {len(damaged)} damaged run{'s' if len(damaged) > 1 else ''}"
    advice = f"`handrail runs` says what of {', '.join(damaged)} is not as it was written."
    return Check(name="journal", ok=True, state=state, where=where, advice=advice)


async def check_git(timeout_s: float) -> Check:
    """The program git."""
    where = shutil.which("git")
    if where is None:
        advice = "Install git: https://git-scm.com/downloads"
        return Check(name="git", ok=False, state="not found", advice=advice)
    why = f"gave no answer within {timeout_s:g} s"
    with anyio.move_on_after(timeout_s):
        try:
            said = await run_process(
                [where, "--version"], marker=f"doctor-{uuid4().hex}", limit_bytes=4096
            )
        except HandrailError as error:
            why = f"fails: {error}"
        else:
            if said.exit_code == 0:
                words = said.stdout.split()
                known = words[2] if len(words) > 2 else None
                return Check(name="git", ok=True, state="ok", version=known, where=where)
            why = f"exited with {said.exit_code}"
    advice = f"`git --version` {why}. If it does when you try it, reinstall git."
    return Check(name="git", ok=False, state="failed", where=where, advice=advice)


def check_extras() -> list[Check]:
    """The optional libraries."""
    return [_library(name, extra) for name, extra in _EXTRAS.items()]


def _library(name: str, extra: str) -> Check:
    try:
        known = version(name)
    except PackageNotFoundError:
        ok, state, known = False, "not installed", None
    else:
        ok, state = True, "ok"
    return Check(
        name=name,
        kind="library",
        ok=ok,
        needed=False,
        state=state,
        version=known,
        advice="" if ok else f'pip install "handrail[{extra}]"',
    )


def check_backend(probed: Probed, *, wanted: bool) -> Check:
    """A backend; ``wanted``: the project asks for it, so it is needed."""
    probe = probed.probe
    if probe is None:
        more = f" Try `{probed.where} --version`." if probed.where else ""
        return Check(
            name=probed.name,
            kind="backend",
            ok=False,
            needed=wanted,
            state=probed.problem,
            where=probed.where,
            advice=probed.reason + more,
        )
    return Check(
        name=probed.name,
        kind="backend",
        ok=_usable(probe),
        needed=wanted,
        state=_standing(probe),
        version=probe.version,
        where=probe.where,
        logged_in=probe.logged_in,
        advice=probe.advice,
    )


def _usable(probe: Probe) -> bool:
    """True unless it is known that it cannot be used; of a login nothing may be known."""
    if not probe.found or probe.logged_in is False:
        return False
    return probe.logged_in is True or not probe.advice


def _standing(probe: Probe) -> str:
    if not probe.found:
        return "not found"
    if probe.logged_in is None:
        return "found"
    return "logged in" if probe.logged_in else "not logged in"
