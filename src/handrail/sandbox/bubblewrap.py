"""Starts a program inside of a sandbox, with bubblewrap.

Theory of operation: ``bwrap`` makes the namespaces, lays out the file system, loads the filter of
system calls, and starts the program. It ends the program if this process ends, and with the program
all that it has started, since these are in a PID namespace of their own. ``env`` around it lets it
outlive the signals that are meant for the program, and gives them back to the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from handrail.model.events import DenialSource
from handrail.model.sandbox import Sandbox, SandboxUnavailable
from handrail.sandbox import proxy as way_out
from handrail.sandbox.denials import Denials
from handrail.sandbox.environment import proxied
from handrail.sandbox.mounts import Scene, mount_words
from handrail.sandbox.seccomp import filter_for, knows
from handrail.system.spawn import Launchable

PACKAGE = "bubblewrap"
_INSTALL = (
    f"Install the package {PACKAGE} of the system: `apt install {PACKAGE}`, "
    f"`dnf install {PACKAGE}`, `apk add {PACKAGE} coreutils`, `pacman -S {PACKAGE}`."
)
_FORBIDDEN = (
    "This system lets no ordinary user make namespaces. As an administrator allow it: an AppArmor "
    "profile for bwrap, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or "
    "`sysctl kernel.unprivileged_userns_clone=1`; in a container, its own security options."
)
_SIGNALS = "INT,TERM,HUP"
_APART = (
    *("--cap-drop", "ALL", "--die-with-parent", "--unshare-user", "--unshare-pid"),
    *("--unshare-ipc", "--unshare-cgroup-try"),
)
_TRIAL_S = 10.0
STATE_BESIDE = "keeps-state-here.handrail"
"""A file in the folder of a program that keeps its state there, as the fakes of tests do."""
_TMP = "/tmp"  # noqa: S108  # the launch's own
_CACHES = {"XDG_CACHE_HOME": f"{_TMP}/.cache", "npm_config_cache": f"{_TMP}/.npm"}


def why_unavailable() -> SandboxUnavailable | None:
    """Why this machine cannot enforce a sandbox, and what to do; None if it can."""
    if sys.platform != "linux":
        system = "macOS" if sys.platform == "darwin" else sys.platform
        advice = "Run it on Linux, in a container or a virtual machine, or leave sandbox= out."
        return SandboxUnavailable(f"handrail has none for {system}", advice)
    if not knows():
        machine = os.uname().machine
        return SandboxUnavailable(f"handrail has no filter of system calls for {machine}")
    program = shutil.which("bwrap")
    if program is None:
        return SandboxUnavailable("the program bwrap is not installed", _INSTALL)
    if said := _trial(program, shutil.which("env") or "env"):
        advice = _INSTALL if "ignore-signal" in said else _FORBIDDEN
        return SandboxUnavailable(f"bwrap fails: {said}", advice)
    return None


@lru_cache(maxsize=4)
def _trial(program: str, env: str) -> str:
    """The last words of a launch that does nothing; none if it went well."""
    with _filter() as number:
        words = [
            *(env, f"--ignore-signal={_SIGNALS}", program, *_APART, "--unshare-net"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *("--perms", "0000", "--tmpfs", "/run", "--remount-ro", "/run"),
            *("--seccomp", str(number)),
            *("--", env, f"--default-signal={_SIGNALS}", "--", "true"),
        ]
        try:
            done = subprocess.run(  # noqa: S603  # our own words
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=(number,),
                timeout=_TRIAL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else (lines or [f"exit code {done.returncode}"])[-1]


@contextlib.contextmanager
def _filter() -> Generator[int]:
    """A pipe from which bwrap reads the filter."""
    read, write = os.pipe()
    try:
        os.write(write, filter_for())
        os.close(write)
        yield read
    finally:
        os.close(read)


class Confinement:
    """The sandbox of one launch, or of several one after the other. Mutable.

    ``tell`` is given what was refused, and how that is known.
    """

    def __init__(
        self, sandbox: Sandbox, scene: Scene, tell: Callable[[str, DenialSource], object]
    ) -> None:
        self._sandbox = sandbox
        self._scene = scene
        self._tell = tell
        self._shown: list[Path] = []
        self._denials = Denials()
        self._proxy: way_out.Proxy | None = None
        self._private_tmp = ""

    def show(self, path: Path) -> None:
        """Let the launch see and change a path of handrail's own, such as a report's."""
        self._shown.append(path)

    @contextlib.contextmanager
    def entered(self, words: Sequence[str], env: Mapping[str, str]) -> Generator[Launchable]:
        """What to execute; the program has been started when the block ends.

        Raises:
            SandboxUnavailable: this machine cannot enforce it. DefinitionError: it lets too much
                be changed. OSError: the program is not there.
        """
        if (refused := why_unavailable()) is not None:
            raise refused
        program = _program(words[0], self._scene.folder, env)
        self._make_private_tmp()
        hosts = self._hosts(env)
        if hosts is not None:
            self._proxy = way_out.Proxy(hosts)
        try:
            with _filter() as number:
                yield self._launchable(words, env, program, number)
        except BaseException:
            self.end()
            raise
        if self._proxy is not None:
            self._proxy.start()

    def _launchable(
        self, words: Sequence[str], env: Mapping[str, str], program: Path, number: int
    ) -> Launchable:
        scene = _with(self._scene, program, self._shown)
        around = {**_CACHES, **env, "TMPDIR": _TMP, "GIT_OPTIONAL_LOCKS": "0"}
        inside = [*(shutil.which("env") or "env", f"--default-signal={_SIGNALS}", "--"), *words]
        handed = [number]
        if self._proxy is not None:
            around = proxied(around, way_out.ADDRESS)
            inside = [*way_out.listener_words(sys.executable, self._proxy), *inside]
            handed.append(self._proxy.theirs.fileno())
        argv = [
            *(shutil.which("env") or "env", f"--ignore-signal={_SIGNALS}"),
            *(shutil.which("bwrap") or "bwrap", *_APART),
            *(() if self._sandbox.network == "full" else ("--unshare-net",)),
            *mount_words(self._sandbox, scene, env, Path(self._private_tmp)),
            *("--seccomp", str(number), "--chdir", str(scene.folder), "--", *inside),
        ]
        return Launchable(argv, around, tuple(handed))

    def _hosts(self, env: Mapping[str, str]) -> tuple[str, ...] | None:
        """The hosts that the launch may reach by the proxy; None: there is no proxy."""
        match self._sandbox.network:
            case "full" | "none":
                return None
            case True:
                return self._scene.needs.hosts_for(env)
            case hosts:
                return (*hosts, *self._scene.needs.hosts_for(env))

    def heard(self, data: bytes) -> None:
        """Take what the program printed: it may say what was refused."""
        for what in self._denials.heard(data):
            self._tell(what, "output")
        self._tell_refused()

    def _tell_refused(self) -> None:
        while self._proxy is not None and self._proxy.refused:
            what = self._proxy.refused.popleft()
            if self._denials.is_new(what):
                self._tell(what, "proxy")

    def end(self) -> None:
        """Take the launch's own things away, once no process of it is left."""
        if self._proxy is not None:
            self._proxy.close()
            self._tell_refused()
            self._proxy = None
        if self._private_tmp:
            folder, self._private_tmp = self._private_tmp, ""
            threading.Thread(target=_remove, args=(folder,)).start()

    def _make_private_tmp(self) -> None:
        if not self._private_tmp:
            self._private_tmp = tempfile.mkdtemp(prefix="handrail-tmp-")


def _remove(folder: str) -> None:
    for above, names, _ in os.walk(folder):
        for path in (Path(above, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)  # the launch may have closed it
    shutil.rmtree(folder, ignore_errors=True)


def _with(scene: Scene, program: Path, shown: Sequence[Path]) -> Scene:
    own = (program,) if (program / STATE_BESIDE).is_file() else ()
    return replace(scene, read=(*scene.read, program), shown=(*scene.shown, *shown, *own))


def _program(name: str, folder: Path, env: Mapping[str, str]) -> Path:
    """The folder to show for a program.

    Raises:
        OSError: it is not there, or not executable.
    """
    if os.sep in name:
        where = folder / name
        if not where.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if where.is_dir() or not os.access(where, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return _installed_in(where)
    found = shutil.which(name, path=env.get("PATH"))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return _installed_in(Path(found))


def _installed_in(program: Path) -> Path:
    return program.parent.parent if program.parent.name == "bin" else program.parent
