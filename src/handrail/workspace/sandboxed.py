"""The sandbox of a step's launch: what follows from the step, and what git wrote inside.

Theory of operation: a launch in a worktree of its own may commit. It gets a copy of its branch and
an empty object store, both in a quarantine outside of the repository, in the place of the real
ones. After the launch, or before anything else after a crash, the host takes in what is there:
objects as git checks them, and the branch alone. Whatever the agent left in the worktree's own part
of the git directory that git would follow elsewhere is removed first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from handrail.errors import CommandFailed
from handrail.model.events import DenialSource, Notice, SandboxDenied
from handrail.model.sandbox import Sandbox, SandboxUnavailable
from handrail.model.shapes import OwnTree
from handrail.sandbox.bubblewrap import Confinement
from handrail.sandbox.mounts import OBJECTS, Scene
from handrail.sandbox.repository import Checkout, OwnBranch, checkout_at
from handrail.workspace.git import Git, known_to_git
from handrail.workspace.places import state_home

_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BOUND_S = 600
"""How long git may take to take in what a launch wrote."""


@asynccontextmanager
async def within_sandbox(
    sandbox: Sandbox | None, scene: Scene, path: str, emit: Callable[[Notice], None], marker: str
) -> AsyncGenerator[Confinement | None]:
    """The sandbox that the programs of a step start in, be it an agent's, a command, or a stage.

    Raises:
        SandboxUnavailable: what it needs cannot be made here.
    """
    if sandbox is None:
        yield None
        return

    def tell(what: str, source: DenialSource) -> None:
        emit(SandboxDenied(path, what, source))

    async with committing(scene.own, marker):
        yield Confinement(sandbox, scene, tell)


# -- git -------------------------------------------------------------------------------------------


def own_branch_of(tree: OwnTree | None) -> OwnBranch | None:
    """The branch of the worktree of a body of steps; None if there is none, or git forgot it."""
    if tree is None:
        return None
    main, folder = checkout_at(Path(tree.root)), Path(tree.folder)
    own = None if main is None else known_to_git(main.common, folder)
    if main is None or own is None:
        return None
    return own_branch(folder, own, main.common, tree.branch)


def own_branch(root: Path, own: Path, common: Path, branch: str) -> OwnBranch:
    """A worktree's branch, with the place of its quarantine."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    quarantine = state_home() / "handrail" / "incoming" / name
    return OwnBranch(Checkout(root, own, common), branch, quarantine)


@asynccontextmanager
async def committing(own: OwnBranch | None, marker: str) -> AsyncGenerator[None]:
    """Prepare a worktree for launches that may commit; at the end take in what they committed.

    Raises:
        SandboxUnavailable: there is no place for it. CommandFailed: see ``take_in``.
    """
    if own is None:
        yield
        return
    await take_in(own, marker)
    try:
        await _prepare(own, marker)
    except OSError as error:
        raise SandboxUnavailable(
            f"the place for what git writes inside cannot be made: {error}",
            "XDG_STATE_HOME names another place.",
        ) from error
    try:
        yield
    except BaseException:
        with suppress(CommandFailed), anyio.fail_after(_BOUND_S, shield=True):
            await take_in(own, marker)
        raise
    with anyio.fail_after(_BOUND_S, shield=True):
        await take_in(own, marker)


async def _prepare(own: OwnBranch, marker: str) -> None:
    checkout, quarantine = own.checkout, own.quarantine
    for name in ("objects/info", "objects/pack", "refs", "logs"):
        (quarantine / name).mkdir(parents=True, mode=0o700)
    (quarantine / "objects/info/alternates").write_text(_alternates(checkout.common / "objects"))
    (checkout.own / "config.worktree").touch()  # or else the launch could make one
    branch, tip = Path("refs/heads", own.branch), await _tip(own, marker)
    for folder in (branch.parent, "logs" / branch.parent):
        (checkout.common / folder).mkdir(parents=True, exist_ok=True)
    if tip:
        (quarantine / "refs" / branch.name).write_text(f"{tip}\n")


async def _tip(own: OwnBranch, marker: str) -> str:
    return await _git(own.checkout, marker).commit(f"refs/heads/{own.branch}")


def _alternates(objects: Path) -> str:
    """Where objects are seen inside: the repository's own, and those that it borrows."""
    lines = [OBJECTS]
    borrowed = objects / "info" / "alternates"
    if borrowed.is_file():
        said = [line for line in borrowed.read_text().splitlines() if line and line[0] != "#"]
        lines += [os.path.normpath(objects / line) for line in said]
    return "".join(f"{line}\n" for line in lines)


def _git(checkout: Checkout, marker: str, **env: Path) -> Git:
    places = {"GIT_DIR": checkout.own, "GIT_COMMON_DIR": checkout.common} | env
    names = {"GIT_WORK_TREE": checkout.root, **places}
    return Git(checkout.root, marker, {name: str(path) for name, path in names.items()})


async def take_in(own: OwnBranch, marker: str) -> None:
    """Take what launches committed and staged into the repository; nothing if none did.

    Raises:
        CommandFailed: git refuses what they wrote; it stays in quarantine.
    """
    checkout, quarantine = own.checkout, own.quarantine
    if not quarantine.is_dir():
        return
    _remove_traps(checkout.own)
    _remove_traps(quarantine)
    (quarantine / "objects/info/alternates").unlink(missing_ok=True)
    said = _text_in(quarantine / "refs" / Path(own.branch).name)
    tip = said if _SHA.fullmatch(said) else ""
    head = _text_in(checkout.own / "HEAD")
    if not _SHA.fullmatch(head):  # on its branch, whatever the launch has said it is on
        (checkout.own / "HEAD").write_text(f"ref: refs/heads/{own.branch}\n")
    wanted = [name for name in (tip, head) if _SHA.fullmatch(name)]
    objects = quarantine / "objects"
    if any((*objects.glob("[0-9a-f][0-9a-f]/*"), *objects.glob("pack/*.pack"))):
        await _take_objects(own, wanted, marker)
    if tip:
        await _git(checkout, marker)("update-ref", f"refs/heads/{own.branch}", tip)
    await anyio.to_thread.run_sync(shutil.rmtree, quarantine)


async def _take_objects(own: OwnBranch, wanted: list[str], marker: str) -> None:
    checkout, quarantine = own.checkout, own.quarantine
    theirs = _git(
        checkout,
        marker,
        GIT_OBJECT_DIRECTORY=quarantine / "objects",
        GIT_ALTERNATE_OBJECT_DIRECTORIES=checkout.common / "objects",
    )
    pack = quarantine / "taken"
    words = ("pack-objects", "--quiet", "--revs", "--indexed-objects", str(pack))
    before = await _tip(own, marker)
    names = [*wanted, *([f"^{before}"] if before else [])]
    name = await theirs(*words, stdin="".join(f"{name}\n" for name in names).encode())
    data = await anyio.Path(f"{pack}-{name.strip()}.pack").read_bytes()
    if int.from_bytes(data[8:12]):
        await _git(checkout, marker)("index-pack", "--stdin", "--strict", stdin=data)


def _text_in(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _remove_traps(folder: Path) -> None:
    """Remove what is neither a file nor a folder: git follows links, and waits for pipes."""
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                path.unlink()


def forget_quarantine(root: Path) -> None:
    """Remove the quarantine of a worktree that is removed."""
    shutil.rmtree(own_branch(root.resolve(), root, root, "").quarantine, ignore_errors=True)
