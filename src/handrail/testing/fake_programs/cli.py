"""Programs with the names of real agent CLIs, on PATH for as long as a test needs them."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self, TypeAlias, get_args

import msgspec

from handrail.errors import WrongUse
from handrail.model.dataclass import dataclass
from handrail.sandbox.bubblewrap import STATE_BESIDE
from handrail.testing.fake_programs.acts import FAILURES, Act, Fails, entry_of
from handrail.testing.fake_programs.folder import Folder, new_state, write_json
from handrail.typed.jsonsafe import short_repr

Program: TypeAlias = Literal[
    "claude", "codex", "copilot", "gemini", "opencode", "auggie", "cline",
    "cursor-agent", "droid", "goose", "junie", "kimi", "kiro-cli", "qwen", "vibe-acp",
]  # fmt: skip
PROGRAMS: tuple[str, ...] = get_args(Program)

LACKING: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(PROGRAMS, frozenset({"invalid_output"})),
    "claude": frozenset(),
    "codex": frozenset({"invalid_output", "max_turns"}),
    "copilot": frozenset({"invalid_output", "max_turns", "output_limit", "refusal"}),
}
"""The failures that none of a program's protocols can express, as far as is known."""

ISOLATED = "-S -E -I"
"""No site-packages, so that the program starts fast. Not used under coverage, which needs them."""


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One launch of a fake program, as the program saw it.

    ``env`` has the variables that its caller added, and those that such programs read; values that
    look like secrets are masked. ``acts`` are the places of its acts in the script: one for a
    launch, or one for each prompt of a conversation. ``children`` are processes that it left.
    ``ended`` and ``exit_code`` are None while it runs and if it was killed; an ``exit_code`` below
    zero is the signal that it died of.
    """

    argv: tuple[str, ...]
    stdin: str
    cwd: str
    env: Mapping[str, str]
    pid: int
    started: float
    ended: float | None
    exit_code: int | None
    acts: tuple[int, ...]
    children: tuple[int, ...]


class FakeCli:
    """A program that speaks the protocol of a real one; made by ``fake_cli``. Mutable.

    Inside of a ``with`` block PATH finds it; ``executable`` is its path in any case. Its script,
    sessions and calls are in ``folder``, which it shares with no other. ``calls`` are its launches
    in the order in which they began, ``probes`` those that only asked for its version.
    """

    def __init__(self, name: str, acts: Sequence[Act | str], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.executable = folder / "bin" / name
        self._state = Folder(str(folder))
        (folder / "calls").mkdir(parents=True, exist_ok=True)
        self.executable.parent.mkdir(exist_ok=True)
        (folder / STATE_BESIDE).touch()
        entries = [entry_of(act) for act in acts]
        script = {"name": name, "acts": entries, "inherited": sorted(os.environ)}
        write_json(str(folder / "script.json"), script)
        write_json(str(folder / "state.json"), new_state({}))
        self.executable.write_text(_launcher(name, folder))
        self.executable.chmod(0o755)

    def __repr__(self) -> str:
        return f"FakeCli({self.name!r}, {str(self.folder)!r})"

    def __enter__(self) -> Self:
        os.environ["PATH"] = os.pathsep.join([str(self.executable.parent), *_path()])
        return self

    def __exit__(self, *_: object) -> None:
        path = _path()
        with contextlib.suppress(ValueError):  # the test has replaced PATH
            path.remove(str(self.executable.parent))
        if path:
            os.environ["PATH"] = os.pathsep.join(path)
        else:
            os.environ.pop("PATH", None)
        self.end_children()

    @property
    def calls(self) -> tuple[FakeCall, ...]:
        """The launches so far, without probes."""
        return self._launches(probe=False)

    @property
    def probes(self) -> tuple[FakeCall, ...]:
        """The launches that only asked for its version."""
        return self._launches(probe=True)

    def _launches(self, *, probe: bool) -> tuple[FakeCall, ...]:
        records = [one for one in self._state.records() if one["probe"] == probe]
        return msgspec.convert(records, tuple[FakeCall, ...])

    @property
    def left(self) -> int:
        """How many acts of the script no prompt has used yet."""
        with self._state.state() as state:
            return len(self._state.script()["acts"]) - int(state["next"])

    def knows(self, session: str) -> Self:
        """Add a session of an earlier day, which can be resumed; returns itself."""
        with self._state.state() as state:
            state["sessions"].setdefault(session, {"turns": 1, "usage": {}})
        return self

    def end_children(self) -> None:
        """End the processes that its launches left, if they still run."""
        try:
            records = self._state.records()
        except FileNotFoundError:  # its folder is gone, and the records with it
            return
        for record in records:
            for child in record["children"]:
                if _is_ours(child):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)


def fake_cli(
    name: Program,
    script: Iterable[Act | str],
    *,
    path: str | os.PathLike[str] | None = None,
) -> FakeCli:
    """A program called ``name`` that speaks the real one's protocol, and does what ``script`` says.

    ::

        with fake_cli("claude", [Fails("usage_cap", resets="9:35pm (UTC)"), "done."]) as claude:
            ...
        assert "--resume=" in " ".join(claude.calls[1].argv)

    Its arguments decide which of its protocols it speaks: copilot has lines of JSON and ACP.

    ``script`` has an act for each prompt, in order: a text, or a ``Says``, ``Fails``, ``Hangs``,
    ``Dies``, ``Garbage`` or ``Replays``. Concurrent prompts take one act each. When the script is
    used up the program fails as with a wrong configuration, and says so. It knows the sessions that
    it began itself (see ``FakeCli.knows``). Like the real program it refuses other sessions, and
    options that it does not have.

    It has a folder of its own below ``path``, so that one ``path`` can serve several fakes; of
    fakes with one name PATH finds the one whose block was entered last. Without ``path`` its folder
    is removed with the object. If agents may write only some files, ``path`` must be outside of the
    folder that is watched for that.

    Raises:
        WrongUse: the program is unknown, the script is no list of acts, or the program cannot
            express a failure in it.
    """
    if name not in PROGRAMS:
        known = ", ".join(map(repr, PROGRAMS))
        raise WrongUse(f"fake_cli knows {known}, got {short_repr(name)}")
    if isinstance(script, (str, bytes)):
        raise WrongUse(
            f"fake_cli takes a list of acts, got {script!r}. For one write [{script!r}]."
        )
    acts = list(script)
    _check_failures(name, acts)
    if path is not None:
        return FakeCli(name, acts, _new_folder(Path(path).resolve(), name))
    fake = FakeCli(name, acts, Path(tempfile.mkdtemp(prefix=f"fake-{name}-")).resolve())
    weakref.finalize(fake, shutil.rmtree, fake.folder, ignore_errors=True)
    return fake


def _new_folder(parent: Path, name: str) -> Path:
    """Make the folder ``claude``, or ``claude-2`` and so on if another fake has that."""
    parent.mkdir(parents=True, exist_ok=True)
    folder, number = parent / name, 1
    while True:
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            folder = parent / f"{name}-{number}"
        else:
            return folder


def _path() -> list[str]:
    """The folders of PATH, none if it is not set."""
    found = os.environ.get("PATH")
    return [] if found is None else found.split(os.pathsep)


def _check_failures(name: str, acts: Sequence[object]) -> None:
    for act in acts:
        if isinstance(act, Fails) and act.kind in LACKING[name]:
            known = ", ".join(kind for kind in FAILURES if kind not in LACKING[name])
            raise WrongUse(f"{name} has no words for {act.kind!r}; it can fail with {known}")


def _launcher(name: str, folder: Path) -> str:
    """A shell script; in a Python script the ``#!`` line would have no room for long paths."""
    flags = "" if "COVERAGE_PROCESS_CONFIG" in os.environ else ISOLATED
    program = Path(__file__).with_name("bootstrap.py")
    words = shlex.join([sys.executable, *flags.split(), str(program), str(folder), name])
    return f'#!/bin/sh\nexec {words} "$@"\n'


def _is_ours(pid: int) -> bool:
    """True if the process still is the one that was left: another may have its id by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[:1] == [b"sleep"]
