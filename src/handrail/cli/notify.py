"""``--notify``: runs a command when a run needs a person, or has ended.

A file beside the run's other files lists the notifications that were sent. So each is sent once,
whichever process is the first to see its cause, and however often the run is resumed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from handrail.cli.channels import tell
from handrail.errors import HandrailError
from handrail.model import events as ev
from handrail.model.folders import run_folder
from handrail.model.results import WaitsFor
from handrail.ports.journal import Journal
from handrail.record.run_record import Recorded
from handrail.shortening import clean

Reason: TypeAlias = Literal["answer", "person", "succeeded", "failed", "cancelled"]
"""A gate needs an ``answer``; a ``person`` must act elsewhere; or how the run ended."""
SENT_FILE, LOG = "notified.jsonl", "notify.log"
LONGEST_S = 60.0
"""How long a command may take; then its whole process group is killed."""
AT_END_S = 5.0
"""How long the commands at work may still take when this process ends."""
_TEXT_CHARS = 2_000
_LOOK_S = 0.1
_NAME = "--notify"


class Notifier:
    """A sink that runs a command once per notification; no failure of it affects the run. Mutable.

    ``answers``: only a person answers gates. ``command`` is for the shell; its environment has
    ``HANDRAIL_RUN_ID``, ``HANDRAIL_WORKFLOW``, ``HANDRAIL_REASON``, ``HANDRAIL_PATH`` (of the step)
    and ``HANDRAIL_TEXT`` (the question, the needed action, or the error).
    """

    def __init__(self, command: str, journal: Journal, artifacts: Path, *, answers: bool) -> None:
        self._command = command
        self._journal = journal
        self._artifacts = artifacts
        self._answers = answers
        self._at_work: list[threading.Thread] = []
        self._ends_by = float("inf")
        self._workflow = ""

    def emit(self, event: ev.Event | ev.Progress, /) -> None:
        """Run the command if the event needs a person, or is the end of the run."""
        if isinstance(event, ev.DriveBegan):
            self._workflow = event.workflow_name or self._workflow
        match event:
            case ev.GateOpened() if self._answers:
                key = f"answer {event.path}#{event.gate.opening}"
                self.tell(event.run_id, "answer", key, event.path, event.gate.question)
            case ev.LadderStep(parked=True):
                with contextlib.suppress(HandrailError):  # a busy journal: the next need notifies
                    since = _first_need(self._journal.events(event.run_id), event)
                    key = f"person {event.path} {since}"
                    self.tell(event.run_id, "person", key, event.path, event.error)
            case ev.WorkflowCompleted(status=("succeeded" | "failed" | "cancelled") as how):
                key, path = f"end {event.seq}", event.failed_step or ""
                self.tell(event.run_id, how, key, path, event.error or "")
            case _:
                pass

    def tell(self, run_id: str, reason: Reason, key: str, path: str = "", text: str = "") -> None:
        """Run the command, unless it has run for the same ``key`` before."""
        folder = self._artifacts / run_folder(self._workflow, run_id)
        variables = {
            "HANDRAIL_RUN_ID": run_id,
            "HANDRAIL_WORKFLOW": self._workflow,
            "HANDRAIL_REASON": reason,
            "HANDRAIL_PATH": path,
            "HANDRAIL_TEXT": clean(text, _TEXT_CHARS),
        }
        try:
            if _is_new(folder, key):
                thread = threading.Thread(target=self._run, args=(variables, folder), daemon=True)
                self._at_work = [one for one in self._at_work if one.is_alive()]
                self._at_work.append(thread)
                thread.start()
        except OSError as error:
            tell(f"{_NAME}: {error}")

    def tell_stuck(self, run_id: str, wait: WaitsFor) -> None:
        """Notify that a run cannot be driven, which waits so; once, until it has new events."""
        events = self._journal.events(run_id)
        first = events[0] if events else None
        self._workflow = first.workflow_name if isinstance(first, ev.WorkflowStarted) else ""
        self.tell(run_id, "person", f"stuck {len(events)}", "", wait.what)

    def close(self) -> None:
        """Wait for the commands at work for ``AT_END_S``, then kill them."""
        self._ends_by = time.monotonic() + AT_END_S
        for thread in self._at_work:
            thread.join()

    def _run(self, variables: Mapping[str, str], folder: Path) -> None:
        try:
            with (folder / LOG).open("ab") as log:
                process = subprocess.Popen(  # noqa: S602  # the user's own command
                    self._command,
                    shell=True,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **variables},
                    start_new_session=True,
                )
            code = self._wait_for(process)
        except OSError as error:
            tell(f"{_NAME}: {error}")
            return
        if code:
            how = "took too long and was killed" if code == -signal.SIGKILL else f"exit {code}"
            tell(f"{_NAME} {self._command!r}: {how}; its output is in {folder / LOG}")

    def _wait_for(self, process: subprocess.Popen[bytes]) -> int:
        began = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_S)
            if time.monotonic() > min(began + LONGEST_S, self._ends_by):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _is_new(folder: Path, key: str) -> bool:
    """True if no notification with this key was sent; from now on it counts as sent."""
    line = json.dumps(key)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / SENT_FILE).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        file.seek(0)
        if line in file.read().splitlines():
            return False
        file.write(f"{line}\n")
    return True


def _first_need(history: Sequence[ev.Event], parked: ev.LadderStep) -> int:
    """The number of the step's first event in a row that parked it for the same kind of failure."""
    since, need = parked.seq, (True, parked.kind, parked.attempt)
    ladder = (rung for rung in Recorded(history).at(parked.path).ladder if rung.seq < parked.seq)
    failed = [one for one in ladder if isinstance(one, ev.LadderStep)]
    for step in reversed(failed):
        if (step.parked, step.kind, step.attempt) != need:
            break
        since = step.seq
    return since
