"""What a launch sees of the file system, as the words of ``bwrap``.

Theory of operation: everything is there to be read; then, from the top of the tree downwards, what
may be changed is laid over it, and what may not be seen is covered. A path below another comes
after it, so the nearest rule counts. Of one path the stricter rule counts. ``/tmp`` and ``/run``
are the launch's own: of what lies there, only what the launch needs is shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from enum import IntEnum
from fnmatch import fnmatch
from pathlib import Path

from handrail.errors import DefinitionError
from handrail.model.dataclass import dataclass
from handrail.model.patterns import fixed_part
from handrail.model.sandbox import Sandbox
from handrail.sandbox.hidden import credentials, homes
from handrail.sandbox.programs import NOTHING, Needs, State
from handrail.sandbox.repository import Checkout, OwnBranch, checkout_at

_MASKED = ("/tmp/", "/run/")  # noqa: S108  # what the launch does not share
_PROGRAM_FOLDERS = frozenset({"bin", "sbin", ".bin", "Scripts"})
OBJECTS = "/run/handrail/objects"
"""Where the repository's own objects are seen, while those of the launch lie in their place."""
_PLANTED = ("commondir", "gitdir", "config.worktree")
"""What tells git where a worktree belongs, and what it executes there."""


class Rule(IntEnum):
    """What a launch may do with a path, from the loosest to the strictest."""

    SEE = 0
    CHANGE = 1
    FRESH = 2
    READ = 3
    HIDE = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """What a launch is about: its folder, its program, what it may write, and what it must not see.

    ``writes`` are the patterns of its step; ``own`` is its worktree. ``read`` are further paths
    that it needs, ``shown`` those that it may change, too.
    """

    folder: Path
    needs: Needs = NOTHING
    writes: tuple[str, ...] | None = None
    own: OwnBranch | None = None
    hidden: tuple[Path, ...] = ()
    read: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()


def mount_words(
    sandbox: Sandbox, scene: Scene, env: Mapping[str, str], private_tmp: Path
) -> list[str]:
    """The words that have ``bwrap`` lay out the file system.

    Makes the folders that are to be changed, where they are missing.

    Raises:
        DefinitionError: what may be changed is a home or the whole system, or leads out of the
            working tree by a link.
    """
    layout = _Layout()
    checkout = scene.own.checkout if scene.own else checkout_at(scene.folder)
    root = checkout.root if checkout else scene.folder
    _refuse_too_much(root, env)
    for path in _needed(scene, checkout, env):
        layout.show(path)
    _lay_tree(layout, scene, checkout, root)
    if scene.own is not None:
        _lay_own_branch(layout, scene.own)
    for home in homes(env):
        for state in scene.needs.states:
            _lay_state(layout, state, state.within(env, home))
    for said in sandbox.write:
        layout.add(Rule.CHANGE, _writable(scene.folder, said))
    for path in scene.shown:
        layout.add(Rule.CHANGE, path)
    for path in _unseen(sandbox, scene, checkout, env):
        layout.add(Rule.HIDE, path)
    return [
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"),
        *("--bind", str(private_tmp), "/tmp"),  # noqa: S108  # the launch's own
        *layout.words(),
        *(("--ro-bind", str(scene.own.checkout.common / "objects"), OBJECTS) if scene.own else ()),
        *("--remount-ro", "/run"),
    ]


class _Layout:
    """Rules by path. Mutable."""

    def __init__(self) -> None:
        self._rules: dict[Path, Rule] = {}
        self._from: dict[Path, Path] = {}

    def add(self, rule: Rule, path: Path, origin: Path | None = None) -> None:
        """Add a rule for a path that is there; ``origin``: what is seen in its place."""
        if not os.path.exists(path):  # noqa: PTH110  # False, too, where it may not be looked at
            return
        path = path.resolve()
        self._rules[path] = max(rule, self._rules.get(path, rule))
        if origin is not None:
            self._from[path] = origin

    def show(self, path: Path) -> None:
        """Have a path be seen, to be read, if it would not be."""
        if not os.path.exists(path):  # noqa: PTH110  # False, too, where it may not be looked at
            return
        path = path.resolve()
        if _lies_masked(path) and f"{path}/" not in _MASKED:
            self.add(Rule.SEE, path)

    def words(self) -> list[str]:
        words: list[str] = []
        sealed: list[str] = []
        seen: dict[Path, Rule] = {}
        for path, rule in sorted(self._rules.items(), key=lambda item: len(item[0].parts)):
            above = next((seen[parent] for parent in path.parents if parent in seen), None)
            if rule is Rule.HIDE and (above is Rule.HIDE or self._is_masked(path, above)):
                continue
            if rule in (Rule.SEE, Rule.READ) and self._is_read_anyway(path, above):
                continue
            seen[path] = rule
            words += self._laid(path, rule)
            if rule is Rule.HIDE and path.is_dir():
                sealed += ["--remount-ro", str(path)]
        return [*words, *sealed]

    def _is_masked(self, path: Path, above: Rule | None) -> bool:
        return above is None and not self._keeps(path) and _lies_masked(path)

    @staticmethod
    def _is_read_anyway(path: Path, above: Rule | None) -> bool:
        return above in (Rule.SEE, Rule.READ) or (above is None and not _lies_masked(path))

    def _keeps(self, hidden: Path) -> bool:
        """True if something below a hidden folder is to be seen."""
        below = f"{hidden}/"
        return any(
            rule is not Rule.HIDE and str(path).startswith(below)
            for path, rule in self._rules.items()
        )

    def _laid(self, path: Path, rule: Rule) -> list[str]:
        place, origin = str(path), str(self._from.get(path, path))
        match rule:
            case Rule.CHANGE:
                return ["--bind", origin, place]
            case Rule.SEE | Rule.READ:
                return ["--ro-bind", origin, place]
            case Rule.FRESH:
                return ["--perms", "0700", "--tmpfs", place]
            case Rule.HIDE if path.is_dir():
                return ["--perms", "0755" if self._keeps(path) else "0000", "--tmpfs", place]
            case Rule.HIDE:
                return ["--ro-bind", os.devnull, place]


def _lies_masked(path: Path) -> bool:
    return f"{path}/".startswith(_MASKED)


def _refuse_too_much(root: Path, env: Mapping[str, str]) -> None:
    resolved = root.resolve()
    for home in (home.resolve() for home in homes(env)):
        if home.is_relative_to(resolved):
            what = "your home" if home == resolved else f"all of {resolved}"
            raise DefinitionError(
                f"a sandbox lets a step change its working folder, and that is {what} here. Work "
                f"in a folder of the task's own (cwd=)."
            )


def _needed(scene: Scene, checkout: Checkout | None, env: Mapping[str, str]) -> Iterable[Path]:
    """What a launch reads and may lie where nothing is seen."""
    if checkout is not None:
        yield from (checkout.main, checkout.common, checkout.own)
    yield from homes(env)
    yield from (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1])
    yield Path("/etc/resolv.conf")
    yield from (Path("/run/current-system"), Path("/run/wrappers"), Path("/run/opengl-driver"))
    for folder in map(Path, env.get("PATH", "").split(os.pathsep)):
        if folder.is_absolute():
            yield folder.parent if folder.name in _PROGRAM_FOLDERS else folder
    yield from (scene.folder, *scene.read)


def _lay_tree(layout: _Layout, scene: Scene, checkout: Checkout | None, root: Path) -> None:
    """What the step may change in its working tree; never how git works there."""
    if scene.writes is None or scene.own is not None:
        layout.add(Rule.CHANGE, root)
    else:
        layout.add(Rule.READ, root)
        for pattern in scene.writes:
            if not pattern.startswith("!"):
                layout.add(Rule.CHANGE, _folder_of(root, pattern))
        for pattern in scene.writes:
            if pattern.startswith("!") and (kept := fixed_part(pattern[1:])):
                layout.add(Rule.READ, root / kept)
    layout.add(Rule.READ, root / ".git")
    if checkout is not None and scene.own is None:
        layout.add(Rule.READ, checkout.common)
        layout.add(Rule.READ, checkout.own)


def _folder_of(root: Path, pattern: str) -> Path:
    """The folder in which everything lies that a pattern covers; made, if it is missing."""
    fixed = fixed_part(pattern)
    has_signs = fixed != pattern.rstrip("/").removeprefix("./").removeprefix("/")
    place = root / fixed
    if not has_signs and not pattern.endswith("/") and not place.is_dir():
        place = place.parent  # a file: programs replace files rather than write into them
    return _made_inside(root, place, pattern)


def _made_inside(root: Path, place: Path, said: str) -> Path:
    resolved = place.resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise DefinitionError(
            f"a sandbox lets a step change {said!r}, and that leads out of {root} by a link, to "
            f"{resolved}. Name that place itself."
        )
    if not resolved.exists():
        resolved.mkdir(parents=True, exist_ok=True)
    return resolved


def _writable(folder: Path, said: str) -> Path:
    """A path of ``write=``; made, if it is missing."""
    path = Path(said).expanduser()
    place = Path(os.path.normpath(folder / path))
    if not path.is_absolute() and place.is_relative_to(folder):
        return _made_inside(folder, place, said)
    if not place.exists():
        place.mkdir(parents=True)
    return place


def _lay_own_branch(layout: _Layout, own: OwnBranch) -> None:
    """What lets git commit on one branch: the rest of the repository stays as it is."""
    checkout, quarantine = own.checkout, own.quarantine
    layout.add(Rule.READ, checkout.common)
    layout.add(Rule.CHANGE, checkout.own)
    for name in _PLANTED:
        layout.add(Rule.READ, checkout.own / name)
    layout.add(Rule.CHANGE, checkout.common / "objects", quarantine / "objects")
    parent = Path("refs/heads", own.branch).parent
    layout.add(Rule.CHANGE, checkout.common / parent, quarantine / "refs")
    layout.add(Rule.CHANGE, checkout.common / "logs" / parent, quarantine / "logs")


def _lay_state(layout: _Layout, state: State, folder: Path) -> None:
    """The program's own state: what it may change for good, and what ends with the launch."""
    if not state.kept and state.anew is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # no home of its own, or not this user's: the program will say so
        return
    for name in state.kept:
        kept = folder / name
        kept.mkdir(exist_ok=True)
        layout.add(Rule.CHANGE, kept)
    for name in state.fixed:
        if "." not in name:
            (folder / name).mkdir(exist_ok=True)
        layout.add(Rule.READ, folder / name)
    if state.anew is None:
        return
    layout.add(Rule.FRESH, folder)
    for entry in folder.iterdir():
        is_anew = any(fnmatch(entry.name, pattern) for pattern in state.anew)
        if entry.name not in state.kept and not is_anew:
            layout.add(Rule.READ, entry)


def _unseen(
    sandbox: Sandbox, scene: Scene, checkout: Checkout | None, env: Mapping[str, str]
) -> Iterable[Path]:
    yield from credentials(env, scene.needs)
    yield from scene.hidden
    yield from (scene.folder / Path(said).expanduser() for said in sandbox.hide)
    if named := env.get("HANDRAIL_DIR") or os.environ.get("HANDRAIL_DIR"):
        yield Path(named)
    for tree in (scene.folder, *scene.folder.parents):
        yield tree / ".handrail"
    if checkout is not None:
        yield checkout.main / ".handrail"
        for tree in checkout.others():
            if not scene.folder.is_relative_to(tree):
                yield tree
