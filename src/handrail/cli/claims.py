"""``handrail claims``, ``claim``, ``release`` and ``lock``: the claims of people and programs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import anyio
import anyio.to_thread
from cyclopts import Parameter

from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.masking import mask_text
from handrail.cli.options import Json, seconds
from handrail.cli.report import columns
from handrail.cli.who import (
    current_claimant,
    current_user,
    enclosing_claimant,
    marker,
    refuse_in_step,
)
from handrail.errors import ClaimLost, DefinitionError
from handrail.model.paths import check_name
from handrail.model.patterns import display_pattern, escaped, literal
from handrail.ports.claims import (
    Claim,
    Claimant,
    ClaimList,
    ClaimRequest,
    ClaimWait,
    Resource,
    text_of,
)
from handrail.shortening import shortened, without_codes
from handrail.sinks.console_text import duration
from handrail.system.marker import marked_environment
from handrail.workspace.claims.holding import find_lost_claim
from handrail.workspace.claims.local import LocalClaims
from handrail.workspace.claims.resources import common_of, files_of
from handrail.workspace.claims.store import marker_of
from handrail.workspace.git import Repository, repository_of

TTL_S = 3600.0
"""How long a person's claim lasts by default."""
_WIDTH = 60
Wait = Annotated[
    str | None,
    Parameter(help="How long to wait for it (90, 15m, 2h); by default without a limit."),
]


# -- claims ----------------------------------------------------------------------------------------


def claims(*, as_json: Json = False) -> int:
    """List the claims in this repository: who holds each, and who waits for it."""
    with json_channel(wanted=as_json) as data:
        repository, listed = anyio.run(_list_claims)
        if not repository:
            tell(f"{Path.cwd()} is in no git repository; listing the names held outside of one")
        if data is not None:
            held = [_held_data(claim) for claim in listed.held]
            waiting = [
                {**_data(wait), "behind": [one.name for one in wait.behind]}
                for wait in listed.waiting
            ]
            write_json({"held": held, "waiting": waiting}, data)
            return Exit.SUCCEEDED
        for line in _lines(listed, time.time()):
            print(without_codes(mask_text(line)))
    return Exit.SUCCEEDED


async def _list_claims() -> tuple[str, ClaimList]:
    repository = await common_of(Path.cwd(), marker())
    return repository, await LocalClaims(repository).listed()


def _lines(listed: ClaimList, now: float) -> list[str]:
    if not listed.held and not listed.waiting:
        return ["there are no claims here"]
    rows = [
        (
            text_of(claim.resources),
            str(claim.claimant),
            f"{duration(now - claim.since)}{_expiry_text(claim, now)}",
        )
        for claim in listed.held
    ]
    rows += [
        (
            text_of(wait.resources),
            str(wait.claimant),
            f"waits {duration(now - wait.since)} for "
            + (", ".join(map(str, wait.behind)) or "its turn"),
        )
        for wait in listed.waiting
    ]
    return columns([(shortened(what, _WIDTH), who, how) for what, who, how in rows])


def _expiry_text(claim: Claim, now: float) -> str:
    if claim.until is None:
        return ""
    return f", ends in {duration(claim.until - now)}"


def _held_data(claim: Claim) -> dict[str, Any]:
    return {
        **_data(claim),
        "epoch": claim.epoch,
        "until": claim.until,
        "host": claim.host,
        "pid": claim.pid or None,
    }


def _data(one: Claim | ClaimWait) -> dict[str, Any]:
    return {
        "holder": one.claimant.name,
        "kind": one.claimant.kind,
        "run": one.claimant.run,
        "path": one.claimant.path,
        "what": text_of(one.resources),
        "names": [its.name for its in one.resources if its.name],
        "patterns": [display_pattern(it) for its in one.resources for it in its.patterns],
        "trees": sorted({its.tree for its in one.resources if its.tree}),
        "since": one.since,
    }


# -- claim -----------------------------------------------------------------------------------------


def claim(
    patterns: Annotated[list[str], Parameter(name="PATTERN")],
    /,
    *,
    ttl: str | None = None,
    wait: Wait = None,
    as_json: Json = False,
) -> int:
    """Claim files of this working tree, so that runs, and agents with the guard, leave them alone.

    Parameters
    ----------
    patterns
        Patterns such as src/** or docs/guide.md, relative to this folder.
    ttl
        How long the claim lasts (15m, 2h, 1d); by default an hour.
    """
    ttl_s = seconds(ttl, "--ttl", unit="s") or TTL_S
    wait_s = seconds(wait, "--wait", unit="s")
    with json_channel(wanted=as_json) as data:
        made = anyio.run(_acquire, patterns, ttl_s, wait_s)
        if data is not None:
            write_json(_held_data(made), data)
        else:
            what = mask_text(text_of(made.resources))
            print(f"{what}: yours for {duration(ttl_s)} (epoch {made.epoch})")
            tell("to release it: handrail release")
    return Exit.SUCCEEDED


async def _acquire(patterns: Sequence[str], ttl_s: float, wait_s: float | None) -> Claim:
    repository = await _repository()
    resource = files_of(
        repository, [_repository_pattern(repository, pattern) for pattern in patterns]
    )
    request = ClaimRequest(current_claimant(), (resource,), wait_s, ttl_s)
    return await LocalClaims().acquire(request, waiting=_tell_wait(request))


async def _repository() -> Repository:
    found = await repository_of(Path.cwd(), marker())
    if found is None:
        hint = "Make it a repository (git init), or hold a name: handrail lock NAME -- COMMAND."
        raise Refused(str(Path.cwd()), "is in no git repository, so it has no files to claim", hint)
    return found


def _repository_pattern(repository: Repository, pattern: str) -> str:
    """A pattern typed in a folder of the repository, as a pattern from the repository's root.

    A pattern without ``/``, except at its end, matches in every folder, wherever it was typed. In
    the name of an existing file no character is special: ``app/[id]/page.tsx``.
    """
    sign = "!" if pattern.startswith("!") else ""
    typed = pattern.removeprefix("!")
    root, here = os.path.realpath(repository.root), os.path.realpath(Path.cwd())
    if escaped(pattern) != pattern and os.path.lexists(pattern):
        there = os.path.relpath(Path(here, pattern), root)
        return f"{escaped(there)}/**" if Path(pattern).is_dir() else literal(there)
    if typed.startswith("/"):
        if typed != root and not typed.startswith(f"{root}/"):
            raise DefinitionError(f"the pattern {pattern!r} leads out of the repository {root}")
        return f"{sign}./{os.path.relpath(typed, root)}"
    if "/" not in typed.rstrip("/") or here == root:
        return pattern
    return f"{sign}{os.path.relpath(here, root)}/{typed}"


def _tell_wait(request: ClaimRequest) -> Callable[[tuple[Claimant, ...]], None]:
    def waiting(others: tuple[Claimant, ...]) -> None:
        who = ", ".join(map(str, others))
        tell(f"waits for {text_of(request.resources)}, behind {who}")

    return waiting


# -- release ---------------------------------------------------------------------------------------


def release(
    what: Annotated[list[str] | None, Parameter(name="WHAT")] = None,
    /,
    *,
    force: bool = False,
    as_json: Json = False,
) -> int:
    """Release your claims in this repository, or the claim that is named.

    Parameters
    ----------
    what
        A pattern, a name, or the number (epoch) of a claim.
    force
        Release another holder's claim. A step that held it fails, and nothing of it is merged.
    """
    if force:
        refuse_in_step("release --force")
    with json_channel(wanted=as_json) as data:
        ended = anyio.run(_release, what or (), force)
        if data is not None:
            write_json([_held_data(one) for one in ended], data)
            return Exit.SUCCEEDED
        for one in ended:
            print(mask_text(f"released {text_of(one.resources)}, which {one.claimant} had"))
        if not ended:
            print("you have no claims here")
    return Exit.SUCCEEDED


async def _release(what: Sequence[str], force: bool) -> list[Claim]:  # noqa: FBT001  # by anyio.run
    repository = await repository_of(Path.cwd(), marker())
    local = LocalClaims("" if repository is None else str(repository.common))
    held, me = (await local.listed()).held, current_claimant()
    wanted = [one for one in held if one.claimant == me]
    if what:
        wanted = [one for name in what for one in _find_claims(held, name, repository)]
    if not force and (foreign := [one for one in wanted if one.claimant != me]):
        hint = "--force takes it away; its work is then not merged."
        raise Refused(str(foreign[0].claimant), f"has {text_of(foreign[0].resources)}", hint)
    for one in wanted:
        await local.release(one)
    return wanted


def _find_claims(held: Sequence[Claim], name: str, repository: Repository | None) -> list[Claim]:
    """The claims with this epoch, name or pattern.

    Raises:
        Refused: there is none.
    """
    if name.isdigit():
        found = [one for one in held if one.epoch == int(name)]
    else:
        found = [one for one in held if any(its.name == name for its in one.resources)]
    if not found and repository is not None:
        wanted = files_of(repository, [_repository_pattern(repository, name)]).patterns
        found = [one for one in held if any(its.patterns == wanted for its in one.resources)]
        found = found or [
            one for one in held if any(set(wanted) & set(its.patterns) for its in one.resources)
        ]
    if not found:
        raise Refused(name, "is not claimed here", "`handrail claims` lists all claims.")
    return found


# -- lock ------------------------------------------------------------------------------------------


def lock(
    name: str,
    command: Annotated[list[str], Parameter(name="COMMAND", allow_leading_hyphen=True)],
    /,
    *,
    wait: Wait = None,
) -> int:
    """Run a command while holding a name: handrail lock git -- git commit -m done.

    The exit code is that of the command.

    Parameters
    ----------
    name
        The name to hold, as a step does with `.holds(name)`.
    command
        The command and its arguments, after `--`.
    """
    if not command:
        raise Refused("handrail lock", "needs a command", "Write handrail lock NAME -- COMMAND.")
    wait_s = seconds(wait, "--wait", unit="s")
    return anyio.run(_run_locked, name, _Child(command), wait_s)


class _Child:
    """A command on this terminal; SIGTERM and SIGHUP are passed on to it. Mutable."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._running: subprocess.Popen[bytes] | None = None
        for signum in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._pass_on)

    def _pass_on(self, signum: int, _: FrameType | None) -> None:
        if self._running is None:
            raise SystemExit(128 + signum)
        self._running.send_signal(signum)

    def run(self, mark: str) -> int:
        """Run the command; its exit code, or 128 plus the number of the signal that ended it."""
        environment = {**os.environ, **marked_environment(mark, os.environ)}
        command = [*self._command]
        try:
            self._running = subprocess.Popen(command, env=environment)  # noqa: S603  # the user's
        except OSError as error:
            raise Refused(command[0], f"cannot be started: {error.strerror}") from None
        code = self._running.wait()
        return 128 - code if code < 0 else code


async def _run_locked(name: str, child: _Child, wait_s: float | None) -> int:
    resource = Resource(check_name(name, "claim"), repository=await common_of(Path.cwd(), marker()))
    inside = enclosing_claimant()
    path = f"lock-{os.getpid()}"
    if inside is None:
        claimant = Claimant(current_user(), path, os.urandom(4).hex(), "command")
    else:
        claimant = replace(inside, path=f"{inside.path}/{path}")
    local = LocalClaims()
    request = ClaimRequest(claimant, (resource,), wait_s)
    held = await local.acquire(request, waiting=_tell_wait(request))
    try:
        code = await anyio.to_thread.run_sync(child.run, marker_of(claimant))
        gone: ClaimLost | None = await find_lost_claim(local, held)
    finally:
        await local.close()
    if gone is not None:
        tell(str(gone))
        return code or Exit.FAILED
    return code
