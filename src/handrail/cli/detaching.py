"""Detached runs: driven by another process, in its own session, with a log beside their files.

``handrail run --detach`` starts a second process with the same command (``detach``). Until the
start of the run is recorded, that process behaves like a run at the terminal: it prints its errors
there, and its exit code is passed on. Then it lets go of the terminal (``Detached``), and the first
process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from handrail.cli.channels import tell
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.model import events as ev
from handrail.model.folders import run_folder
from handrail.ports.journal import RunInfo
from handrail.system.own_files import open_private

FLAG = "--detach"
VARIABLE = "HANDRAIL_DETACHED"
"""The environment variable that marks the second process.

Its value is the descriptor of the pipe on which that process reports the start; empty: no report.
"""
RESUMED, DETACHED = "resumed.log", "detached.log"


def should_detach(words: Sequence[str]) -> bool:
    """True if the command is to be detached, and this process is not the second one already."""
    commands = words[:1] in (["run"], ["resume"])
    return commands and FLAG in words and VARIABLE not in os.environ


def detach(words: Sequence[str]) -> int:
    """Run the command in a second process, and print the run's id once its start is recorded.

    Returns 0, or the exit code of the second process if it ends before.
    """
    reading, writing = os.pipe()
    passed_on = [word for word in words if word != "--json"]
    process = subprocess.Popen(  # noqa: S603  # this command itself
        [sys.executable, "-m", "handrail", *passed_on],
        pass_fds=(writing,),
        env={**os.environ, VARIABLE: str(writing)},
        start_new_session=True,
    )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        if not said:
            return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    begun = json.loads(said)
    process.returncode = Exit.SUCCEEDED  # it runs on, and this process does not wait for it
    if "--json" in words:
        print(said.decode())
    else:
        print(begun["run_id"])
        if "pid" in begun:
            tell(f"driven by process {begun['pid']}; its output is in {begun['log']}")
        else:
            ((kind, address),) = ((key, at) for key, at in begun.items() if key != "run_id")
            tell(f"the {kind} at {address} runs it; its workers drive it")
    return Exit.SUCCEEDED


def detached_sink() -> Detached | None:
    """The sink that lets go of the terminal, if this is the second process.

    Called once, before any program starts: programs must not inherit ``VARIABLE``.
    """
    said = os.environ.pop(VARIABLE, None)
    return None if said is None else Detached(int(said) if said else None)


class Detached:
    """A sink that lets go of the terminal at the first event of the run. Mutable.

    ``artifacts``, the folder of the runs' files, is set later. ``waits_for_people``: when the run
    only waits for a person, the process stays and does not suspend it.
    """

    def __init__(self, pipe: int | None) -> None:
        self.artifacts = Path()
        self.waits_for_people = pipe is not None
        self._pipe = pipe
        self._has_begun = False

    def emit(self, event: ev.Event | ev.Progress, /) -> None:
        """At the first event of the run, redirect the outputs to its log, and report the start."""
        if self._has_begun or not isinstance(event, ev.DriveBegan):
            return
        self._has_begun = True
        folder = self.artifacts / run_folder(event.workflow_name, event.run_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = folder / DETACHED
        with open_private(log, "ab") as file, Path(os.devnull).open("rb") as nothing:
            sys.stdout.flush()
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
            os.dup2(nothing.fileno(), 0)
        self.report({"run_id": event.run_id, "pid": os.getpid(), "log": str(log)})

    def report(self, begun: Mapping[str, Any]) -> None:
        """Tell the first process, if there is one, that the run has begun."""
        if self._pipe is None:
            return
        with (
            contextlib.suppress(OSError),
            os.fdopen(self._pipe, "w") as out,
        ):  # the first process may have gone
            json.dump(begun, out)


def spawn_resume(
    place: Place, info: RunInfo, here: Path, more: Sequence[str] = ()
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Start a process that resumes a run, with ``more`` options.

    Returns the process, and its log beside the run's artifacts.
    """
    log = place.artifacts / run_folder(info.workflow_name, info.run_id) / RESUMED
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = open_private(log, "a+b")
    return _spawn(place.command("resume", info.run_id, "--quiet", *more), file, here), file


def spawn_run(
    place: Place, words: Sequence[str], inputs: Mapping[str, Any], here: Path
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Start a process that begins a run; it reads the inputs from its stdin.

    Returns the process, and a file with its output until the run has begun. After that a log beside
    the run's artifacts has the output.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    command = place.command("run", "--inputs", "-", "--quiet", *words)
    process = _spawn(command, file, here, stdin=subprocess.PIPE, env={**os.environ, VARIABLE: ""})
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(inputs_text(inputs).encode())
    return process, file


def inputs_text(inputs: Mapping[str, Any]) -> str:
    """The inputs as the JSON that a process reads from its stdin."""
    return json.dumps(dict(inputs), default=str)


def _spawn(
    command: str,
    file: IO[bytes],
    here: Path,
    *,
    stdin: int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # this command itself
        [sys.executable, "-m", "handrail", *shlex.split(command)[1:]],
        cwd=here,
        stdin=stdin,
        stdout=file,
        stderr=file,
        env=env,
        start_new_session=True,
    )
