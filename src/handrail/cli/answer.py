"""``handrail answer`` and ``signal``: messages to a run that is alive, suspended or dead."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated, Any

from cyclopts import Parameter

from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.options import STEERING, RunId, RunTarget, SteeringOptions
from handrail.cli.reaching import reach_run
from handrail.cli.report import one_line
from handrail.codec.unresolved import Unresolved
from handrail.errors import GateClosed, HandrailError, did_you_mean
from handrail.model import events as ev
from handrail.model.results import prompts_of
from handrail.ports.journal import Journal
from handrail.record.inbox import waited_for
from handrail.record.reading import awaits_its_first_drive, history_of
from handrail.shortening import clean


def answer(
    run: RunId,
    gate: str,
    text: Annotated[str, Parameter(name="ANSWER", allow_leading_hyphen=True)],
    /,
    *,
    target: RunTarget = None,
    steering: SteeringOptions = STEERING,
) -> int:
    """Answer an open question of a run in any state. Exit code 1 if it is already answered.

    Parameters
    ----------
    gate
        The path of the step that asks the question.
    text
        One of the choices, or a value of the question's type. A choice that asks for a text is
        "CHOICE: TEXT"; on a terminal the text is asked for.
    """
    with reach_run(run, steering) as it:
        if _needs_code(it.journal, it.run_id, gate):
            it.workflow(target)
        given = _with_text(it.journal, it.run_id, gate, text)
        try:
            value = it.executor().answer_sync(it.run_id, gate, given, by=it.who)
        except GateClosed as error:
            if it.data is not None:
                said = {"answer": error.answer, "by": error.by, "at": error.at}
                it.print_done("", gate=gate, accepted=False, **said)
            tell(one_line(str(error)))
            return Exit.FAILED
        line = f"answered {gate!r} with {value!r}, by {it.who}"
        it.print_done(line, gate=gate, accepted=True, answer=value, by=it.who)
        it.print_resume_hint()
    return Exit.SUCCEEDED


def signal(
    run: RunId,
    name: str,
    payload: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    steering: SteeringOptions = STEERING,
) -> int:
    """Send a signal to a run in any state; a `wait_for` step receives it.

    Parameters
    ----------
    name
        The signal's name.
    payload
        JSON, or text.
    """
    with reach_run(run, steering) as it:
        if it.info.status == "succeeded" and it.info.holder is None:
            raise Refused(f"run {it.run_id}", "has succeeded and takes no more signals")
        sent = payload_of(payload)
        history = history_of(it.journal, it.run_id)
        awaited = waited_for(history)
        if any(isinstance(one, Unresolved) for one in awaited.get(name, ())):  # the code has it
            with contextlib.suppress(HandrailError):  # without the code it is sent as typed
                it.workflow(None)
        it.executor().signal_sync(it.run_id, name, sent, by=it.who)
        line = f"sent the signal {name!r}, by {it.who}"
        it.print_done(line, signal=name, payload=sent, by=it.who)
        if name not in awaited and (awaited or not awaits_its_first_drive(history)):
            near, names = did_you_mean([name], list(awaited)), ", ".join(map(repr, awaited))
            others = f" It waits for: {names}." if awaited else ""
            tell(one_line(f"no step waits for {name!r} now; it is kept for one.{near}{others}"))
        it.print_resume_hint()
    return Exit.SUCCEEDED


def payload_of(text: str | None) -> Any:
    """The typed text parsed as JSON, or the text itself if it is no JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _with_text(journal: Journal, run_id: str, path: str, answer: str) -> Any:
    """The answer; on a terminal with the text that its choice asks for, which is asked now."""
    for event in journal.events(run_id) if sys.stdin.isatty() else ():
        if isinstance(event, ev.GateOpened) and event.path == path:
            prompt = prompts_of(event.gate.choices, event.gate.values).get(answer)
            if prompt is not None:
                return {answer: input(f"{clean(prompt)} ")}
    return answer


def _needs_code(journal: Journal, run_id: str, path: str) -> bool:
    """True if a gate's choices or type are of a class that the workflow's own code defines."""
    for event in journal.events(run_id):
        if isinstance(event, ev.GateOpened) and event.path == path:
            parts = (*event.gate.choices, event.gate.type, event.gate.default)
            if any(isinstance(part, Unresolved) for part in parts):
                return True
    return False
