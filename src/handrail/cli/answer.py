"""``handrail answer`` and ``signal``: to a run that is alive, suspended or dead."""

from __future__ import annotations

import contextlib
import getpass
import json
import platform
from typing import Any, TextIO

import anyio

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place, line_of, picked
from handrail.cli.masking import shown
from handrail.cli.report import one_line
from handrail.cli.target import workflow_of
from handrail.codec.unresolved import Unresolved
from handrail.errors import GateClosed, HandrailError
from handrail.model import events as ev
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import unread, waited_for
from handrail.record.reading import history_of
from handrail.typed.jsonsafe import json_safe

PATIENCE_S = 2.0
"""How long to wait for a live run to take in what was sent; a live one looks ten times a second."""
EVERY_S = 0.05


def answer(
    name: str,
    gate: str,
    text: str,
    place: Place,
    *,
    by: str | None,
    as_json: bool,
    target: str | None = None,
) -> int:
    """Answer a gate; 1 if somebody else did before.

    Raises:
        HandrailError: there is no such run or gate, or this is no answer to it.
    """
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        who = by or whoever()
        if _needs_code(journal, info.run_id, gate):
            workflow_of(info, place, target)
        said = {"run_id": info.run_id, "gate": gate}
        try:
            value = Executor(journal=journal).answer_sync(info.run_id, gate, text, by=who)
        except GateClosed as error:
            write_said(data, said, accepted=False, answer=error.answer, by=error.by, at=error.at)
            tell(one_line(str(error)))
            return Exit.FAILED
        write_said(data, said, accepted=True, answer=value, by=who)
        if data is None:
            print(shown(f"answered {gate!r} with {value!r}, by {who}"))
        tell_who_goes_on(journal, info, place)
    return Exit.SUCCEEDED


def signal(
    name: str, signal_name: str, text: str | None, place: Place, *, by: str | None, as_json: bool
) -> int:
    """Send a signal; it is kept until a step takes it.

    Raises:
        HandrailError: there is no such run, it has succeeded and can take none, or it waits for a
            payload of another type; nothing was sent.
    """
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        if info.status == "succeeded" and info.holder is None:
            raise Refused(f"run {info.run_id}", "has succeeded, and takes no more signals")
        payload, who = payload_of(text), by or whoever()
        if _is_of_unknown_type(journal, info.run_id, signal_name):
            with contextlib.suppress(HandrailError):  # then it is sent as it is
                workflow_of(info, place, None)
        Executor(journal=journal).signal_sync(info.run_id, signal_name, payload, by=who)
        write_said(data, {"run_id": info.run_id, "signal": signal_name}, payload=payload, by=who)
        if data is None:
            print(f"sent the signal {signal_name!r}, by {who}")
        tell_who_goes_on(journal, info, place)
    return Exit.SUCCEEDED


def payload_of(text: str | None) -> Any:
    """What was typed, as JSON if it is any, else as text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def whoever() -> str:
    """Who types this: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{platform.node()}"


def _needs_code(journal: Journal, run_id: str, path: str) -> bool:
    """True if a gate's choices or type are of a class that the workflow's own code defines."""
    for event in journal.events(run_id):
        if isinstance(event, ev.GateOpened) and event.path == path:
            parts = (*event.gate.choices, event.gate.type, event.gate.default)
            if any(isinstance(part, Unresolved) for part in parts):
                return True
    return False


def _is_of_unknown_type(journal: Journal, run_id: str, name: str) -> bool:
    """True if who waits for a signal takes a class that the workflow's own code defines."""
    return any(isinstance(one, Unresolved) for one in waited_for(history_of(journal, run_id), name))


def tell_who_goes_on(journal: Journal, info: RunInfo, place: Place) -> None:
    """Say how to resume a run that nobody drives, or whose drive ended before it took this in."""
    now = anyio.run(taken_in, journal, info)
    if now.holder is None and now.status != "succeeded":
        tell(f"nobody drives the run; go on with: {place.command('resume', info.run_id)}")


async def taken_in(journal: Journal, info: RunInfo) -> RunInfo:
    """The run once it has read its letters, or is driven no more, or after ``PATIENCE_S``."""
    info = line_of(journal, info.run_id) or info
    with anyio.move_on_after(PATIENCE_S):
        while info.holder is not None and _has_unread(journal, info.run_id):
            await anyio.sleep(EVERY_S)
            info = line_of(journal, info.run_id) or info
    return info


def _has_unread(journal: Journal, run_id: str) -> bool:
    return bool(unread(journal, run_id, history_of(journal, run_id)))


def write_said(data: TextIO | None, said: dict[str, Any], **more: Any) -> None:
    """Print what was said as JSON, if that was asked for."""
    if data is not None:
        write_json(json_safe({**said, **more}), data)
