"""Runs git so that it does what it is asked and nothing else, whatever is configured.

Theory of operation. An agent may have written the settings, attributes and hooks of the repository
in which handrail calls git. So every call has the same overrides: no hooks, monitors, prompts,
signatures, pagers, replaced objects, or transports, and no settings of a user or a system. Filters,
merge drivers and the like have names that only the settings know. Therefore no call here reads or
writes files of a working tree: a ``shadow.Shadow`` does, whose settings nobody else writes.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path

from handrail.errors import CommandFailed
from handrail.model.dataclass import dataclass
from handrail.system.run import run_process

_STEADY = (
    "--no-optional-locks",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "core.excludesFile=/dev/null"),
    *("-c", "core.trustctime=true"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.ignoreStat=false"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.commitGraph=false"),
    *("-c", "core.quotePath=true"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "log.showSignature=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "advice.addEmbeddedRepo=false"),
    *("-c", "advice.graftFileDeprecated=false"),
    *("-c", "color.ui=false"),
    *("-c", "user.name=handrail"),
    *("-c", "user.email=handrail@localhost"),
)
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "LC_ALL": "C",
    # No transports: git would fetch a missing object with a program that a setting names.
    "GIT_ALLOW_PROTOCOL": "",
}
_OF_NOBODY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
"""Whose settings count. Only to find a repository those of the user do: ``safe.directory``."""

# A git hook that starts handrail sets these; each call would then use the hook's repository.
_ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX"),
    *("GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_ATTR_SOURCE"),
    *("GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_QUARANTINE_PATH", "GIT_CONFIG"),
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS"),
    *("GIT_ICASE_PATHSPECS", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"),
    *("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE"),
)

_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Git:
    """git in one folder, one process at a time; its processes carry ``marker``."""

    folder: Path
    marker: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    own_settings: bool = True

    async def __call__(
        self, *arguments: str, stdin: bytes = b"", ok: Collection[int] = (0,)
    ) -> str:
        """What git prints; bytes that are not UTF-8 as ``os.fsdecode`` gives them.

        Raises:
            CommandFailed: the exit code is none of ``ok``. CommandNotFound: there is no git.
        """
        code, stdout, stderr = await self.run_unchecked(*arguments, stdin=stdin)
        if code not in ok:
            told = printable(stdout)
            raise CommandFailed(
                repr(printable(shlex.join(("git", *arguments)))), code, told, stderr
            )
        return stdout

    async def commit(self, name: str) -> str:
        """The commit of this name, or ""."""
        words = ("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
        code, commit, _ = await self.run_unchecked(*words)
        return "" if code else commit.strip()

    async def tree(self, commit: str | None) -> str:
        """The tree of a commit; without one, the tree without files."""
        empty = ("hash-object", "-t", "tree", "/dev/null")
        return (await self(*(("rev-parse", f"{commit}^{{tree}}") if commit else empty))).strip()

    async def is_within(self, commit: str, of: str) -> bool:
        """True if a commit is the other one, or one of those before it."""
        return (await self.run_unchecked("merge-base", "--is-ancestor", commit, of))[0] == 0

    async def run_unchecked(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """The exit code of git, and what it printed."""
        argv = [*_without(self.env), "git", *_STEADY, *arguments]
        done = await run_process(
            argv,
            marker=self.marker,
            cwd=self.folder,
            env={**_ENVIRONMENT, **(_OF_NOBODY if self.own_settings else {}), **self.env},
            stdin=stdin,
            errors="surrogateescape",
            limit_bytes=_KEPT_BYTES,
        )
        return done.exit_code, done.stdout, done.stderr


def path_text(path: str) -> str:
    """A path, whose bytes need not be UTF-8, as text: each byte a Latin-1 character."""
    return os.fsencode(path).decode("latin-1")


def path_of(text: str) -> str:
    """The path that :func:`path_text` wrote."""
    return os.fsdecode(text.encode("latin-1"))


def printable(path: str) -> str:
    """A path as text that can be stored: bytes that are not UTF-8 become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _without(env: Mapping[str, str]) -> list[str]:
    """Words before the command that unset variables which lead git to another repository."""
    astray = [name for name in _ELSEWHERE if name in os.environ and name not in env]
    return ["env", *(word for name in astray for word in ("-u", name))] if astray else []


@dataclass(frozen=True, slots=True)
class Repository:
    """The folders of a working tree (``root``) and of its git directory.

    ``own`` is the working tree's own part of the git directory (its HEAD and index), ``common`` the
    part that all working trees share. ``ignored`` is a file of more ignore patterns.
    """

    root: Path
    own: Path
    common: Path
    objects: Path
    sha256: bool = False
    ignored: str = ""

    def git(self, marker: str) -> Git:
        """A ``Git`` for this working tree, even if its ``.git`` now leads elsewhere."""
        places = {"GIT_DIR": self.own, "GIT_COMMON_DIR": self.common, "GIT_WORK_TREE": self.root}
        return Git(self.root, marker, {name: str(path) for name, path in places.items()})


async def repository_of(folder: Path, marker: str) -> Repository | None:
    """The repository that a folder is in, or None.

    Raises:
        CommandFailed: git refuses. CommandNotFound: there is no git, or no such folder.
    """
    git = Git(folder, marker, own_settings=False)
    asked = ["--show-toplevel", "--git-dir", "--git-common-dir", "--git-path", "objects"]
    words = ("rev-parse", "--path-format=absolute", *asked, "--show-object-format")
    code, stdout, stderr = await git.run_unchecked(*words)
    if code:
        if "not a git repository" in stderr or "in a work tree" in stderr:
            return None
        raise CommandFailed(repr(shlex.join(("git", *words))), code, stdout, stderr)
    root, own, common, objects, form = stdout.splitlines()
    words = ("config", "--local", "--type=path", "--get", "core.excludesFile")
    ignored = (await git(*words, ok=(0, 1))).strip()
    places = (Path(root), Path(own), Path(common), Path(objects))
    return Repository(*places, form == "sha256", ignored)


async def head_of(git: Git) -> str | None:
    """The commit of HEAD, or None if there is none yet."""
    return await git.commit("HEAD") or None


def known_to_git(common: Path, folder: Path) -> Path | None:
    """The folder by which git knows a worktree, or None."""
    told = {os.fsencode(one / ".git") for one in (folder, folder.resolve())}
    for file in sorted((common / "worktrees").glob("*/gitdir")):
        if file.read_bytes().strip() in told:
            return file.parent
    return None


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry of an index.

    ``flag`` is git's letter: ``S`` if the file need not be there (skip-worktree), a small one if
    git is to take it for unchanged.
    """

    flag: str
    mode: str
    blob: str
    stage: str
    path: str


async def index_entries(git: Git) -> list[Listed]:
    """The entries of the index."""
    found: list[Listed] = []
    for told in (await git("ls-files", "-z", "--stage", "-v")).split("\0")[:-1]:
        fields, _, path = told.partition("\t")
        flag, mode, blob, stage = fields.split(" ")
        found.append(Listed(flag, mode, blob, stage, path))
    return found
