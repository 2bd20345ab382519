"""A run that a command acts on by messages, whichever process drives it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

import anyio
import attrs

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.journal import Place, find_info, pick_run, read
from handrail.cli.masking import mask_text
from handrail.cli.options import SteeringOptions
from handrail.cli.report import answer_command
from handrail.cli.target import reaching, workflow_of
from handrail.cli.who import acting_user
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import unread
from handrail.record.reading import history_of
from handrail.record.run_record import Recorded
from handrail.typed.jsonsafe import json_safe

PATIENCE_S = 2.0
"""How long to wait for a live run to read a message; it reads its inbox ten times a second."""
EVERY_S = 0.05


@attrs.frozen
class ReachedRun:
    """A run, and who acts on it; ``data``: the stream for JSON, if that was asked for."""

    info: RunInfo
    journal: Journal
    place: Place
    who: str
    data: TextIO | None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.info.run_id

    def workflow(self, target: str | None) -> Any:
        """The run's workflow, imported from its recorded TARGET, or from another one.

        Raises:
            Refused: it cannot be imported.
        """
        return workflow_of(self.info, self.place, target)[0]

    def executor(self, *workflows: Any) -> Executor:
        """An executor that sends messages to the run."""
        return Executor(journal=self.journal, workflows=workflows)

    def print_done(self, text: str, /, **done: Any) -> None:
        """Print what was done: the text, or ``done`` as JSON if that was asked for."""
        if self.data is None:
            print(mask_text(text))
        else:
            write_json(json_safe({"run_id": self.run_id, **done}), self.data)

    def print_resume_hint(self) -> None:
        """Print how to answer the next open question and how to resume the run, if no process
        drives it once it had time to read this.
        """
        now = anyio.run(self.wait_until_read)
        if now.holder is None and now.status != "succeeded":
            place = reaching(self.place, self.info)
            view = read(self.journal, now).view
            waits = {wait.path for wait in view.waits_for if wait.kind == "answer"}
            for gate in [gate for gate in view.gates if gate.path in waits][:1]:
                tell(f"it waits for an answer: {answer_command(self.run_id, gate, place)}")
            resume = place.command("resume", self.run_id)
            tell(f"no process is running it; to continue: {resume}")

    def _unread(self) -> bool:
        return bool(unread(self.journal, Recorded(history_of(self.journal, self.run_id))))

    async def wait_until_read(self) -> RunInfo:
        """The run's entry once its inbox is read, or no process drives it, or patience ends."""
        journal, run_id = self.journal, self.run_id
        info = find_info(journal, run_id) or self.info
        with anyio.move_on_after(PATIENCE_S):
            while info.holder is not None and self._unread():
                await anyio.sleep(EVERY_S)
                info = find_info(journal, run_id) or info
        return info


@contextmanager
def reach_run(run: str, steering: SteeringOptions) -> Generator[ReachedRun]:
    """A run to act on, by its id or the beginning of that.

    Raises:
        HandrailError: there is no such run, or more than one.
    """
    place = steering.where.place()
    with json_channel(wanted=steering.as_json) as data:
        journal = place.find()
        yield ReachedRun(pick_run(journal, run), journal, place, acting_user(steering.by), data)
