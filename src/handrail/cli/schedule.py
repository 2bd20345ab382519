"""``[[tool.handrail.schedule]]``: begins runs by the clock, one for each instant of a schedule.

The journal decides which worker begins the run of an instant. The run's id is made of the
schedule's name and the instant, and of two workers that begin a run of one id the journal refuses
one. So all workers agree. A file beside the journal says when each schedule was first seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from handrail.cli.detaching import inputs_text
from handrail.cli.exits import Refused
from handrail.cli.inputs import arguments_for
from handrail.cli.target import load_with_executor
from handrail.errors import DefinitionError, HandrailError, InvalidInput, MissingExtra
from handrail.model.dataclass import dataclass
from handrail.model.results import OVER
from handrail.ports.journal import SCHEDULE_LABEL, RunInfo
from handrail.project import no_such_key

Overlap: TypeAlias = Literal["skip", "wait", "start"]
Missed: TypeAlias = Literal["once", "skip"]
SEEN = "schedules.json"
SOON_S = 120.0
"""Instants so shortly before a worker's start were not missed: the worker was only restarted."""
_NAME = re.compile(r"[\w.-]+")
_TABLE = "[[tool.handrail.schedule]]"
_TEXTS = ("workflow", "cron", "name", "timezone", "overlap", "missed")
_KEYS = (*_TEXTS, "inputs")
_CHOICES: Mapping[str, tuple[str, ...]] = {"overlap": get_args(Overlap), "missed": get_args(Missed)}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a workflow is to be run, with which inputs.

    ``overlap``: what to do at an instant at which an earlier run of the schedule has not ended:
    ``"skip"`` it, ``"wait"`` for that run, or ``"start"`` one beside it. ``missed``: what to do
    about instants at which no worker was up: begin a run for the last of them (``"once"``), or for
    none (``"skip"``).
    """

    name: str
    cron: str
    workflow: str
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    overlap: Overlap = "skip"
    missed: Missed = "once"
    timezone: str = "UTC"

    def last(self, now: float) -> float:
        """The last instant that is not after ``now`` (unix seconds)."""
        return next(one for one in _instants(self, int(now) + 1, reverse=True) if one <= now)

    def following(self, now: float) -> float:
        """The next instant after ``now``."""
        return next(_instants(self, int(now)))

    def run_id(self, instant: float) -> str:
        """The id of the run of an instant."""
        return f"{self.name}-{datetime.fromtimestamp(instant, UTC):%Y%m%dT%H%M%SZ}"

    @property
    def key(self) -> str:
        """The identity of the schedule; one with other times is another schedule."""
        return f"{self.name} {self.cron} {self.timezone}"


@dataclass(frozen=True, slots=True)
class Instant:
    """A run that a schedule begins now, or, with ``skipped``, why it does not."""

    schedule: Schedule
    at: float
    run_id: str
    skipped: str = ""


def schedules_of(table: Mapping[str, Any]) -> list[Schedule]:
    """The schedules in a project's table.

    Raises:
        DefinitionError: one is invalid; the text names the file and the key.
        MissingExtra: cronsim is not installed.
    """
    file = table["file"]
    found = [_schedule(file, said) for said in table.get("schedule", ())]
    for name, count in Counter(one.name for one in found).items():
        if count > 1:
            why = f"{count} schedules are named {name!r}: give each another name"
            raise DefinitionError(f"{file}: {_TABLE} {why}")
    return found


def broken_schedules(file: str, schedules: Iterable[Schedule]) -> list[str]:
    """What is wrong with each schedule whose workflow's code raises when it is imported.

    Raises:
        DefinitionError: one names no workflow, or one that does not take its inputs, so that the
            table must be changed; the text names the file and the schedule.
    """
    found: list[str] = []
    for schedule in schedules:
        values = json.loads(inputs_text(schedule.inputs))
        try:
            workflow, _ = load_with_executor(schedule.workflow)
            arguments_for(workflow.definition, (), values, form="inputs.{}")
        except (Refused, InvalidInput) as error:
            why = f"{file}: {_TABLE} {schedule.name!r}: {error}"
            if not (isinstance(error, Refused) and error.__cause__):
                raise DefinitionError(why) from error
            found.append(why)
    return found


def _schedule(file: str, given: dict[str, Any]) -> Schedule:
    for key, value in given.items():
        if key not in _KEYS:
            raise no_such_key(file, _TABLE, key, _KEYS)
        if key in _TEXTS and not isinstance(value, str):
            raise DefinitionError(f"{file}: {_TABLE} {key} must be text, got {value!r}")
        if key in _CHOICES and value not in _CHOICES[key]:
            wanted = ", ".join(map(repr, _CHOICES[key]))
            raise DefinitionError(f"{file}: {_TABLE} {key} must be one of {wanted}, got {value!r}")
    for key in ("cron", "workflow"):
        if key not in given:
            raise DefinitionError(f"{file}: {_TABLE} lacks {key}")
    inputs = given.get("inputs", {})
    if not isinstance(inputs, dict):
        raise DefinitionError(f"{file}: {_TABLE} inputs must be a table, got {inputs!r}")
    target = given["workflow"]
    name = given["name"] if "name" in given else Path(target.rpartition(":")[2]).stem
    fields: dict[str, Any] = {**given, "name": name}
    schedule = Schedule(**fields)
    if not _NAME.fullmatch(name):
        raise _invalid_value(file, "name", name, "use letters, digits, '.', '_' and '-'")
    try:
        ZoneInfo(schedule.timezone)
    except (KeyError, ValueError, OSError) as error:
        why = str(error).strip("'\"")
        raise _invalid_value(file, "timezone", schedule.timezone, why) from None
    try:
        schedule.following(0.0)
    except HandrailError:
        raise
    except Exception as error:  # noqa: BLE001  # the library raises errors of its own
        raise _invalid_value(file, "cron", schedule.cron, str(error)) from None
    return schedule


def _invalid_value(file: str, key: str, value: str, why: str) -> DefinitionError:
    return DefinitionError(f"{file}: {_TABLE} {key} {value!r} is not valid: {why}")


def _instants(schedule: Schedule, since: int, *, reverse: bool = False) -> Iterator[float]:
    try:
        from cronsim import CronSim
    except ImportError as error:
        raise MissingExtra("A schedule", "cronsim", "cli") from error
    begin = datetime.fromtimestamp(since, ZoneInfo(schedule.timezone))
    return (one.timestamp() for one in CronSim(schedule.cron, begin, reverse=reverse))


class Timetable:
    """Tells a worker which instants are due. Mutable: it keeps which ones were decided.

    ``folder`` is that of the journal. The worker began ``now``; earlier instants were missed.
    """

    def __init__(self, schedules: Sequence[Schedule], folder: Path, now: float) -> None:
        self.schedules = schedules
        self._began = now
        self._seen = _first_seen(folder / SEEN, schedules, now) if schedules else {}
        self._done: dict[str, float] = {}
        """By schedule, the last instant that was decided."""
        self._begun: dict[str, str] = {}
        """By schedule, the last run that this worker began."""

    def due(
        self, infos: Iterable[RunInfo], now: float, at_work: Container[str] = ()
    ) -> list[Instant]:
        """The instants that are to be begun, or skipped, and were not yet; ``at_work``: the runs
        whose processes this worker has, also those that have recorded nothing yet.
        """
        last = [(schedule, schedule.last(now)) for schedule in self.schedules]
        open_ = [(one, at) for one, at in last if self._is_open(one, at)]
        if not open_:
            return []
        runs = list(infos)
        found = [self._decide(one, at, runs, at_work) for one, at in open_]
        return [one for one in found if one is not None]

    def mark_done(self, instant: Instant) -> None:
        """Note that the instant was begun or skipped; how its run ends does not matter here."""
        self._done[instant.schedule.name] = instant.at
        if not instant.skipped:
            self._begun[instant.schedule.name] = instant.run_id

    def _is_open(self, schedule: Schedule, at: float) -> bool:
        known = max(self._seen[schedule.key], self._done.get(schedule.name, 0.0))
        is_missed = at < self._began - SOON_S
        return at > known and not (is_missed and schedule.missed == "skip")

    def _decide(
        self, schedule: Schedule, at: float, runs: Sequence[RunInfo], processes: Container[str]
    ) -> Instant | None:
        run_id = schedule.run_id(at)
        if any(run.run_id == run_id for run in runs):  # another worker was first
            self._done[schedule.name] = at
            return None
        mine = [run for run in runs if run.labels.get(SCHEDULE_LABEL) == schedule.name]
        at_work = [one.run_id for one in mine if one.status not in OVER]
        begun = self._begun.get(schedule.name, "")
        if begun in processes and all(run.run_id != begun for run in runs):
            at_work.append(begun)  # it has not recorded its start yet
        match schedule.overlap:
            case "wait" if at_work:
                return None
            case "skip":
                was = [one.run_id for one in mine if one.started_at <= at < one.updated_at]
                for one in (*at_work, *was):
                    why = f"run {one} had not ended"
                    return Instant(schedule, at, run_id, why)
            case _:
                pass
        return Instant(schedule, at, run_id)


def _first_seen(file: Path, schedules: Sequence[Schedule], now: float) -> dict[str, float]:
    """When each schedule was first seen: it has no instants before that."""
    known: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(file.read_text("utf-8"))
    seen = {schedule.key: known.get(schedule.key, now) for schedule in schedules}
    if seen != known:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        beside.write_text(json.dumps(seen, indent=2), "utf-8")
        beside.replace(file)
    return seen
