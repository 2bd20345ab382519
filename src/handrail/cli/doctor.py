"""``handrail doctor``: what is here, what is missing, what to do about it. No model is asked."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import anyio

from handrail.cli.channels import json_channel, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import VARIABLE, Place
from handrail.cli.options import WHERE, Json, Where
from handrail.cli.report import columns
from handrail.errors import HandrailError, JournalFailed
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS
from handrail.model.dataclass import dataclass
from handrail.model.sandbox import sandbox_in
from handrail.ports.agent import AgentBackend, Probe
from handrail.project import project_table
from handrail.sandbox.bubblewrap import why_unavailable
from handrail.system.run import run_process

Kind: TypeAlias = Literal["machine", "backend", "library"]

_OLDEST = (3, 11)
_EXTRAS = {"jinja2": "agents", "rich": "cli", "pydantic-ai-slim": "api", "temporalio": "temporal"}
PROBE_S = 5.0
"""How long a backend may take for its probe."""
_AT_ONCE = 2
"""How many probes run at once. Starting programs use the processor: many would seem to hang."""

Named: TypeAlias = tuple[str, Callable[[], Any]]
"""A backend's name, and a function that creates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    ``ok``: the thing can be used. ``needed``: nothing runs without it. ``state``: its condition in
    a word or two. ``advice``: what to do.
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
        """True if nothing runs until somebody has fixed this."""
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
    """The journal's folder, or the nearest above it that exists, tested by writing a file there."""
    folder = place.folder
    if place.elsewhere is not None:
        found: Check = place.elsewhere.check()
        return found
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
        return _check_records(place)
    state = "ok" if there == folder else "ok (to be made)"
    return Check(
        name="journal", ok=True, state=state, where=str(folder), advice=_git_clean_advice(place)
    )


def _git_clean_advice(place: Place) -> str:
    """A warning if ``git clean`` would remove the journal from a checkout; else empty."""
    file = place.file.resolve()
    checkout = any((above / ".git").exists() for above in file.parents)
    if place.is_safe or ".git" in file.parts or not checkout:
        return ""
    return (
        f"It is in a git checkout, where `git clean -fdx` removes it, and agents run that command. "
        f"For unattended runs, name a folder outside: --dir or {VARIABLE}."
    )


def _check_records(place: Place) -> Check:
    """The existing journal: whether its runs can be listed, and which of them are damaged."""
    where = str(place.folder)
    try:
        runs = place.find().runs()
    except JournalFailed as error:
        return Check(name="journal", ok=False, state="not readable", where=where, advice=str(error))
    damaged = [run.run_id for run in runs if run.damaged]
    if not damaged:
        advice = _git_clean_advice(place)
        return Check(name="journal", ok=True, state="ok", where=where, advice=advice)
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


def check_sandbox() -> Check:
    """Whether the sandbox that a step may ask for can be enforced; needed where a project does."""
    try:
        wanted = bool(sandbox_in(project_table()))
    except HandrailError:  # its settings are a check of their own
        wanted = False
    refused = why_unavailable()
    return Check(
        name="sandbox",
        ok=refused is None,
        needed=wanted,
        state="ok (bubblewrap)" if refused is None else "cannot be enforced",
        where=shutil.which("bwrap"),
        advice="" if refused is None else f"{refused.why}. {refused.advice}".strip(),
    )


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
        ok=_is_usable(probe),
        needed=wanted,
        state=_login_state(probe),
        version=probe.version,
        where=probe.where,
        logged_in=probe.logged_in,
        advice=probe.advice,
    )


def _is_usable(probe: Probe) -> bool:
    """True if the backend is found and logged in, or its login is unknown and it has no advice."""
    if not probe.found or probe.logged_in is False:
        return False
    return probe.logged_in is True or not probe.advice


def _login_state(probe: Probe) -> str:
    if not probe.found:
        return "not found"
    if probe.logged_in is None:
        return "found"
    return "logged in" if probe.logged_in else "not logged in"


_HEADINGS = ("CHECK", "STATE", "VERSION", "WHERE")


def doctor(*, as_json: Json = False, where: Where = WHERE) -> int:
    """Check this machine: Python, git, the journal, each backend and its login. Calls no model.

    The exit code is 1 if something required is missing.

    Parameters
    ----------
    as_json
        Print the checks as JSON.
    """
    return examine(where.place(reads=True), as_json=as_json)


def examine(
    place: Place,
    *,
    as_json: bool,
    backends: Sequence[Named] | None = None,
    timeout_s: float = PROBE_S,
) -> int:
    """Print all checks; 1 if something is missing without which nothing runs."""
    with json_channel(wanted=as_json) as data:
        checks = anyio.run(partial(_run_checks, place, backends, timeout_s))
        problems = [check.name for check in checks if check.problem]
        if data is not None:
            write_json({"ok": not problems, "checks": [asdict(check) for check in checks]}, data)
    if not as_json:
        _print_checks(checks)
        ready = "ready to run"
        if not any(check.ok for check in checks if check.kind == "backend" and check.name != "api"):
            ready += ", except for agents: no agent program works here"
        print(f"to fix: {', '.join(problems)}" if problems else ready)
    return Exit.FAILED if problems else Exit.SUCCEEDED


@dataclass(frozen=True, slots=True)
class Probed:
    """A backend's name, and its probe; or why there is none, as one word and as a sentence."""

    name: str
    probe: Probe | None
    problem: str = ""
    reason: str = ""
    where: str | None = None


async def probe_all(backends: Sequence[Named], timeout_s: float = PROBE_S) -> list[Probed]:
    """The backends' probes, in their order. A backend that fails or hangs affects no other."""
    found: dict[int, Probed] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(place: int, named: Named) -> None:
        async with limiter:
            found[place] = await _probe_one(*named, timeout_s)

    async with anyio.create_task_group() as tasks:
        for place, named in enumerate(backends):
            tasks.start_soon(ask, place, named)
    return [found[place] for place in range(len(backends))]


async def _probe_one(name: str, make: Callable[[], Any], timeout_s: float) -> Probed:
    where: str | None = None
    try:
        backend = make()
        executable = getattr(backend, "executable", None)
        where = shutil.which(executable) if isinstance(executable, str) else None
        if not callable(getattr(backend, "probe", None)):
            return Probed(name, None, "unknown", "It has no probe().", where)
        with anyio.move_on_after(timeout_s):
            return Probed(name, await backend.probe())
    except Exception as error:  # noqa: BLE001  # any problem of a backend is a result here
        said = " ".join(str(error).split())
        return Probed(name, None, "failed", f"{type(error).__name__}: {said}", where)
    return Probed(name, None, "no answer", f"It said nothing within {timeout_s:g} s.", where)


async def _run_checks(
    place: Place, backends: Sequence[Named] | None, timeout_s: float
) -> list[Check]:
    settings, refused = _chosen_backend()
    wanted, model = settings
    named = _backends_to_probe(wanted, model) if backends is None else backends
    checks = [check_python(), check_journal(place), await check_git(timeout_s), check_sandbox()]
    checks += refused
    probed = await probe_all(named, timeout_s)
    checks += [check_backend(one, wanted=one.name == wanted) for one in probed]
    return [*checks, *check_extras()]


def _chosen_backend() -> tuple[tuple[str | None, str | None], list[Check]]:
    """The backend and model that the environment or project names; a check if they are wrong."""
    try:
        settings = agent_defaults(None, None, NO_OPTIONS)
    except HandrailError as error:
        advice = " ".join(str(error).split())
        return (None, None), [Check(name="settings", ok=False, state="wrong", advice=advice)]
    if not isinstance(settings.backend, str):
        return (None, None), []
    name, _, model = settings.backend.partition(":")
    return (name, model or settings.options.model), []


def _backends_to_probe(wanted: str | None, model: str | None) -> list[Named]:
    """Every backend; of those that are no more than a name, the installed and the wanted one.

    ``api`` gets the chosen model, without which its probe says little.
    """
    from handrail.agents.routes import OTHER_NAMES, backend_names, make_backend

    def make(name: str) -> AgentBackend:
        if name == "api" and model is not None:
            from handrail.agents.api.backend import ApiBackend

            return ApiBackend(model)
        return make_backend(name)

    others = (
        name
        for name in OTHER_NAMES
        if name == wanted or make_backend(name).where(NO_OPTIONS)  # type: ignore[attr-defined]
    )
    names = dict.fromkeys((*backend_names(), *others))
    return [(name, partial(make, name)) for name in names]


def _print_checks(checks: Iterable[Check]) -> None:
    """Print a line for each check, and its advice below it."""
    checks = list(checks)
    rows = [(one.name, one.state, one.version or "", one.where or "") for one in checks]
    head, *lines = columns([_HEADINGS, *rows])
    print(head)
    width = max(len(row[0]) for row in (_HEADINGS, *rows))
    for line, check in zip(lines, checks, strict=True):
        print(line)
        if check.advice:
            print(f"{'':{width}}  -> {check.advice}")
