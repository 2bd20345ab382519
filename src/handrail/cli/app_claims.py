"""The commands by which people and programs keep out of the way of runs, and of one another."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from handrail.cli.options import Json

Wait = Annotated[
    str | None,
    Parameter(help="How long to wait for it (90, 15m, 2h); by default as long as it takes."),
]


def claims(*, as_json: Json = False) -> int:
    """List what is held in this repository, by whom, and who waits for it."""
    from handrail.cli.claims import claims as list_claims

    return list_claims(as_json=as_json)


def claim(
    patterns: Annotated[list[str], Parameter(name="PATTERN")],
    /,
    *,
    ttl: str | None = None,
    wait: Wait = None,
    as_json: Json = False,
) -> int:
    """Claim files of this working tree: runs, and sessions with the guard, keep out of them.

    Parameters
    ----------
    patterns
        Patterns such as src/** or docs/guide.md, relative to this folder.
    ttl
        How long it lasts (15m, 2h, 1d); by default an hour.
    """
    from handrail.cli.claims import claim as claim_files

    return claim_files(patterns, ttl=ttl, wait=wait, as_json=as_json)


def release(
    what: Annotated[list[str] | None, Parameter(name="WHAT")] = None,
    /,
    *,
    force: bool = False,
    as_json: Json = False,
) -> int:
    """Give back what you have claimed in this repository, or what is named.

    Parameters
    ----------
    what
        A pattern, a name, or the number (epoch) of a claim.
    force
        Take it from whoever has it: a step that had it fails, and merges nothing.
    """
    from handrail.cli.claims import release as release_claims

    return release_claims(what or (), force=force, as_json=as_json)


def lock(
    name: str,
    command: Annotated[list[str], Parameter(name="COMMAND", allow_leading_hyphen=True)],
    /,
    *,
    wait: Wait = None,
) -> int:
    """Run a command while this name is held: handrail lock git -- git commit -m done.

    The exit code is that of the command.

    Parameters
    ----------
    name
        What `.holds(name)` of a step holds, too.
    command
        The command and its arguments, behind `--`.
    """
    from handrail.cli.claims import lock as run_locked

    return run_locked(name, command, wait=wait)


def guard(
    *,
    install: Annotated[str | None, Parameter(name="--install")] = None,
    remove: Annotated[str | None, Parameter(name="--remove")] = None,
    user: bool = False,
) -> int:
    """Be the hook that an agent program runs before it edits: JSON on stdin, exit code 2 refuses.

    Parameters
    ----------
    install
        Write the hook into the settings of this program: claude.
    remove
        Take it out again.
    user
        In the user's settings, not in those of this project.
    """
    from handrail.cli.guard import guard as be_the_hook
    from handrail.cli.guard import install as set_up

    program = install or remove
    if program is None:
        return be_the_hook()
    return set_up(program, user=user, remove=install is None)


def worktrees(*, prune: bool = False, force: bool = False, as_json: Json = False) -> int:
    """List the worktrees that steps have left, or remove those that are merged.

    Parameters
    ----------
    prune
        Remove those that no step works in, and whose work is merged.
    force
        With --prune: also those whose work is not.
    """
    from handrail.cli.worktrees import worktrees as list_worktrees

    return list_worktrees(prune=prune, force=force, as_json=as_json)


def add_to(app: App) -> None:
    """Make them commands of an app."""
    for command in (claims, claim, release, lock, guard, worktrees):
        app.command(command)
