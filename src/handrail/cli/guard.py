"""``handrail guard``: a hook by which agent sessions that no run started respect claims.

Before an agent program edits a file, it runs this hook, with the intended edit on stdin as JSON.
The hook claims the file for the session, until its turn ends. If somebody else has the claim, the
hook refuses the edit (exit code 2), and the program's model gets the reason. When the turn or the
session ends, the hook releases the session's claims.

In a program that a step of a run has started, the step's claims count: if it has claimed files, the
program may edit only those; else the hook claims the file for the step.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import anyio

from handrail.cli.exits import Exit, Refused
from handrail.cli.who import enclosing_claimant, marker
from handrail.errors import ClaimTimeout
from handrail.ports.claims import Claimant, ClaimRequest
from handrail.workspace.claims.local import LocalClaims
from handrail.workspace.claims.resources import these_files
from handrail.workspace.git import Repository, repository_of

TTL_S = 600.0
"""How long a session's claim lasts, if the end of its turn is never reported."""
_REFUSED = 2
_PATHS = ("file_path", "notebook_path", "filePath", "absolute_path", "path")
_ENDS = frozenset({"Stop", "SessionEnd", "AfterAgent", "stop", "sessionEnd"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox"})
_EDITS = "Edit|MultiEdit|Write|NotebookEdit"


def guard(*, install: str | None = None, remove: str | None = None, user: bool = False) -> int:
    """The hook that agent programs run before an edit: reads JSON on stdin, exit code 2 refuses.

    Parameters
    ----------
    install
        Add the hook to the settings of this program: claude.
    remove
        Remove the hook from the settings of this program: claude.
    user
        Use the user's settings, not this project's.
    """
    program = install or remove
    if program is not None:
        return _set_up(program, user=user, remove=install is None)
    try:
        asked = json.loads(sys.stdin.buffer.read() or b"{}")
    except ValueError as error:
        raise Refused("handrail guard", f"got no JSON on stdin: {error}", _USE) from None
    if not isinstance(asked, dict):
        raise Refused("handrail guard", "got no JSON object on stdin", _USE)
    try:
        said = anyio.run(_refusal_of_edit, cast("dict[str, Any]", asked))
    except ValueError as error:  # a path that no file can have: only this exit code refuses an edit
        said = f"handrail guard: {error}. Edit no file of such a name."
    if said:
        print(said, file=sys.stderr)
        return _REFUSED
    return Exit.SUCCEEDED


_USE = "An agent program runs it as a hook; `handrail guard --install claude` sets that up."


async def _refusal_of_edit(asked: Mapping[str, Any]) -> str:
    """Why the edit is refused; empty if it is allowed. The end of a turn releases its claims."""
    session = str(asked.get("session_id") or asked.get("sessionId") or os.getppid())
    folder = Path(str(asked.get("cwd") or Path.cwd()))
    if asked.get("hook_event_name") in _ENDS:
        await _release_session(session, folder)
        return ""
    given: object = asked.get("tool_input") or asked.get("toolArgs") or {}
    for path in _edited_paths(given):
        said = await _claim_file(session, folder / path)
        if said:
            return said
    return ""


def _edited_paths(given: object) -> Iterator[str]:
    """The files that a tool is to edit, as far as its arguments name them."""
    if isinstance(given, str):  # JSON in JSON
        try:
            given = json.loads(given)
        except ValueError:
            return
    if isinstance(given, dict):
        arguments = cast("dict[str, object]", given)
        yield from (str(arguments[name]) for name in _PATHS if arguments.get(name))


async def _claim_file(session: str, file: Path) -> str:
    placed = await _locate_file(file)
    if placed is None:
        return ""
    repository, path = placed
    step = enclosing_claimant()
    local = LocalClaims(str(repository.common))
    tree = str(repository.root)
    if step is not None:
        held = (await local.listed()).held
        own = [one for claim in held if step.is_within(claim.claimant) for one in claim.resources]
        if any(one.covers(tree, path) for one in own):
            return ""
        if any(one.tree == tree for one in own):
            return f"{path} is not among the files that {step} may write."
    claimant = step or Claimant(_name(session), kind="session")
    request = ClaimRequest(claimant, (these_files(repository, [path]),), 0, TTL_S, _program())
    before = [one for one in (await local.listed()).held if one.claimant == claimant]
    try:
        await local.acquire(request)
    except ClaimTimeout as error:
        who = ", ".join(error.holders)
        return (
            f"{path} is claimed by {who}, who is working on it now. Do not edit it by any means. "
            f"Do something else first, and try again later. If nothing else is left to do, say "
            f"so. `handrail claims` lists all claims."
        )
    for one in before:  # older claims of the same file: the new one lasts longer
        if one.resources == request.resources:
            await local.release(one)
    return ""


async def _release_session(session: str, folder: Path) -> None:
    above = _folder_above(folder)
    repository = None if above is None else await repository_of(above, marker())
    if repository is None:
        return
    local = LocalClaims(str(repository.common))
    for one in (await local.listed()).held:
        if one.claimant == Claimant(_name(session), kind="session"):
            await local.release(one)


async def _locate_file(file: Path) -> tuple[Repository, str] | None:
    """The repository of a file that may not exist yet, and its path there; None outside of one."""
    above = _folder_above(file.parent)
    repository = None if above is None else await repository_of(above, marker())
    path = None if repository is None else _path_in(repository, file)
    return None if repository is None or path is None else (repository, path)


def _folder_above(folder: Path) -> Path | None:
    """The folder itself, or the nearest above it that exists."""
    real = Path(os.path.realpath(folder))
    return next((one for one in (real, *real.parents) if one.is_dir()), None)


def _path_in(repository: Repository, file: Path) -> str | None:
    root, real = os.path.realpath(repository.root), os.path.realpath(file)
    return os.path.relpath(real, root) if real.startswith(f"{root}/") else None


def _name(session: str) -> str:
    return f"session {session[:8]}"


def _program() -> int:
    """The pid of the agent program: the nearest ancestor of this process that is no shell."""
    pid = os.getppid()
    for _ in range(8):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        if name not in _SHELLS or above <= 1:
            break
        pid = above
    return pid


# -- installation ----------------------------------------------------------------------------------


def _set_up(program: str, *, user: bool, remove: bool) -> int:
    """Write the hook into the settings of an agent program, or take it out."""
    if program != "claude":
        raise Refused(program, "is not a program that the guard supports", "Known: claude.")
    file = _settings(user=user)
    try:
        settings: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    except ValueError as error:
        raise Refused(str(file), f"is not JSON: {error}", "Repair it first.") from None
    changed = _with_hooks(settings, remove=remove)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(json.dumps(changed, indent=2, ensure_ascii=False) + "\n", "utf-8")
    fresh.replace(file)
    done = "taken out of" if remove else "in"
    print(f"the guard is {done} {file}")
    return Exit.SUCCEEDED


def _settings(*, user: bool) -> Path:
    """Claude Code's settings: of the project that this folder is in, or of the user."""
    if user:
        own = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(own) if own else Path.home() / ".claude") / "settings.json"
    repository = anyio.run(repository_of, Path.cwd(), marker())
    root = Path.cwd() if repository is None else repository.root
    return root / ".claude" / "settings.json"


def _hooks() -> dict[str, list[dict[str, Any]]]:
    found = shutil.which("handrail")
    program = "handrail" if found else f"{shlex.quote(sys.executable)} -m handrail"
    hook = {"type": "command", "command": f"{program} guard", "timeout": 60}
    return {
        "PreToolUse": [{"matcher": _EDITS, "hooks": [hook]}],
        "Stop": [{"hooks": [hook]}],
        "SessionEnd": [{"hooks": [hook]}],
    }


def _with_hooks(settings: dict[str, Any], *, remove: bool) -> dict[str, Any]:
    """The settings with the guard's hooks once, or without them; all else stays."""
    hooks = {name: [*entries] for name, entries in dict(settings.get("hooks") or {}).items()}
    for name, entries in _hooks().items():
        others = [one for one in hooks.get(name, []) if not _is_guard(one)]
        hooks[name] = others if remove else [*others, *entries]
    kept = {name: entries for name, entries in hooks.items() if entries}
    rest = {name: value for name, value in settings.items() if name != "hooks"}
    return {**rest, "hooks": kept} if kept else rest


def _is_guard(entry: Any) -> bool:
    commands = [one.get("command", "") for one in entry.get("hooks", ())]
    return bool(commands) and all(command.endswith("handrail guard") for command in commands)
