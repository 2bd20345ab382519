"""The options that several commands share."""

from __future__ import annotations

import re
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from handrail import addons

if TYPE_CHECKING:
    from handrail.agents.cassette.cassette import Cassette
    from handrail.cli.driving import Options
    from handrail.cli.journal import Place
    from handrail.engine.parts import OnChange
    from handrail.ports.journal import Journal

T = TypeVar("T")
Gates = Literal["approve", "default", "fail", "ask"]

Json = Annotated[bool, Parameter(name="--json")]
Quiet = Annotated[bool, Parameter(help="Print no progress.")]
Dir = Annotated[
    Path | None,
    Parameter(
        name="--dir",
        allow_leading_hyphen=True,
        help="The journal's folder; by default HANDRAIL_DIR, or .handrail in this folder.",
    ),
]
ExecutorName = Annotated[
    str | None,
    Parameter(
        name="--executor",
        help="Your executor, as file.py:name or module:name; or a function that makes one.",
    ),
]
RunId = Annotated[str, Parameter(help="The run's id, or the beginning of it.")]
RunTarget = Annotated[
    str | None, Parameter(help="The run's workflow, if it has moved or is outside of the project.")
]
CassetteFolder = Annotated[Path | None, Parameter(allow_leading_hyphen=True)]
Words = Annotated[list[str] | None, Parameter()]
Command = Annotated[str | None, Parameter(allow_leading_hyphen=True)]


def with_fields(options: type[T], *others: type, **more: Any) -> type[T]:
    """The dataclass with the fields of others, and with more options, which are None by default."""
    fields: list[tuple[str, Any, Any]] = [(name, hint, None) for name, hint in more.items()]
    where = {"__module__": options.__module__}  # Cyclopts does not look into a class of `types`
    bases = (*others, options)
    return make_dataclass(options.__name__, fields, bases=bases, frozen=True, namespace=where)


def _with_journals(options: type[T]) -> type[T]:
    """The dataclass with an option for each registered journal."""
    about = "Use the runs of {0} at this address; by default {1}, or [tool.handrail] {0}."
    kinds = addons.names(addons.JOURNALS)
    helps = {kind: about.format(kind, f"HANDRAIL_{kind.upper()}") for kind in kinds}
    return with_fields(
        options,
        **{kind: Annotated[str | None, Parameter(help=said)] for kind, said in helps.items()},
    )


@Parameter(name="*")
@_with_journals
@dataclass(frozen=True)
class Kept:
    """Where runs are kept, for commands that only read them."""

    folder: Dir = None

    def place(self, *, reads: bool = True) -> Place:
        """The place of the journal; if the command only ``reads``, without the project's code."""
        from handrail.cli.target import place_of

        named_at = {kind: getattr(self, kind) for kind in addons.names(addons.JOURNALS)}
        return place_of(self.folder, getattr(self, "executor", None), named_at, reads=reads)


KEPT = Kept()


@Parameter(name="*")
@dataclass(frozen=True)
class Where(Kept):
    """Where runs are kept, and what drives them."""

    executor: ExecutorName = None

    def place(self, *, reads: bool = False) -> Place:
        """As for ``Kept``."""
        return super().place(reads=reads)


WHERE = Where()


@Parameter(name="*")
@dataclass(frozen=True)
class Driving:
    """How a run is driven and shown.

    Parameters
    ----------
    as_json
        Print the result as JSON on stdout, and the progress on stderr.
    gates
        How questions are answered: approve (the first choice), default, fail, or ask (from stdin).
        By default at the terminal; without a terminal the run is suspended.
    backend
        The backend of agents that name none: claude, codex, ...
    model
        The model of agents that name none.
    no_artifacts
        Write no prompts, transcripts and outputs as files beside the journal.
    record
        Record what agents are asked, answer and change in this folder.
    replay
        Launch no agents; replay what was recorded in this folder.
    max_steps
        Fail the run after this many steps.
    timeout
        Fail the run this many seconds after it started.
    budget_usd
        The most that the run's agents may cost, in dollars.
    max_launches
        The most launches of agents. A run without any such limit asks after 200 launches.
    label
        NAME=VALUE, recorded with the run; repeatable.
    ui
        Also show the run in a browser while it runs.
    detach
        Run in the background: print the run's id once its start is recorded, and return. The run
        waits at questions until they are answered, from any process.
    notify
        A shell command to run when the run needs a person and when it has ended. Overrides notify
        of [tool.handrail]; '' runs none.
    """

    as_json: Json = False
    quiet: Quiet = False
    gates: Gates | None = None
    backend: str | None = None
    model: str | None = None
    no_artifacts: bool = False
    record: CassetteFolder = None
    replay: CassetteFolder = None
    max_steps: int | None = None
    timeout: float | None = None
    budget_usd: float | None = None
    max_launches: int | None = None
    label: Words = None
    ui: bool = False
    detach: bool = False
    notify: Command = None

    def place(self, where: Where) -> Place:
        """The place of the journal.

        Raises:
            Refused: options were typed that do not apply where others drive its runs.
        """
        place = where.place()
        if place.elsewhere is not None:
            place.elsewhere.refuse(
                {
                    "--backend": self.backend,
                    "--model": self.model,
                    "--record": self.record,
                    "--replay": self.replay,
                    "--notify": self.notify,
                }
            )
        return place

    def refuse_labels(self) -> None:
        """Raise if a label was typed for a run that has begun already.

        Raises:
            Refused: one was.
        """
        from handrail.cli.exits import Refused

        if self.label:
            why = "is for new runs: a run keeps the labels it was started with"
            raise Refused("--label", why, "Leave it out.")

    def options(self) -> Options:
        """These options as ``cli.driving`` takes them.

        Raises:
            Refused: options were typed that exclude one another.
        """
        from handrail.cli.bounds import limits_of
        from handrail.cli.detaching import detached_sink
        from handrail.cli.driving import Options
        from handrail.cli.exits import Refused
        from handrail.cli.settings import parse_labels
        from handrail.project import project_table

        if self.detach and self.gates == "ask":
            why = "cannot be combined: a detached run has no terminal"
            raise Refused("--detach and --gates ask", why, "Leave one out.")
        typed = {
            "max_steps": self.max_steps,
            "timeout": self.timeout,
            "budget_usd": self.budget_usd,
            "max_launches": self.max_launches,
        }
        bounds = {name: value for name, value in typed.items() if value is not None}
        limits_of(**bounds)  # refuses a wrong value before anything is loaded
        table = project_table()
        return Options(
            as_json=self.as_json,
            quiet=self.quiet,
            gates=self.gates,
            artifacts=not self.no_artifacts,
            backend=self.backend,
            model=self.model,
            cassette=_cassette_of(self.record, self.replay),
            bounds=bounds,
            labels=parse_labels(self.label or [], table),
            ui=self.ui,
            detached=detached_sink(),
            notify=self.notify if self.notify is not None else table.get("notify"),
        )


@Parameter(name="*")
@dataclass(frozen=True)
class SteeringOptions:
    """Who steers a run, and where it is.

    Parameters
    ----------
    by
        The person to record as doing this; by default user@host.
    as_json
        Print what was done as JSON.
    """

    by: str | None = None
    as_json: Json = False
    where: Where = WHERE


RerunFailed = Annotated[bool | str, Parameter(negative="")]
"""A name may follow, or none."""


@Parameter(name="*")
@dataclass(frozen=True)
class ChangedSteps:
    """What to do about recorded steps that have changed.

    Parameters
    ----------
    reuse
        The path of a changed step whose record is kept; repeatable.
    rerun
        The path of a recorded step to run again, or a pattern such as 'items/*'; repeatable.
    rerun_failed
        Run the failed members of this group again. Without a name, and behind the run's id: those
        of all groups that collect failures.
    rerun_from
        The path of a step to run again, with every step that started after it.
    reuse_changed
        Keep the records of all changed steps.
    rerun_changed
        Run all changed steps again.
    """

    reuse: Words = None
    rerun: Words = None
    rerun_failed: RerunFailed = False
    rerun_from: str | None = None
    reuse_changed: bool = False
    rerun_changed: bool = False

    @property
    def on_change(self) -> OnChange | None:
        """What to do with changed steps that are not named; None: as the executor says.

        Raises:
            Refused: both options were typed.
        """
        from handrail.cli.exits import Refused

        if self.reuse_changed and self.rerun_changed:
            both = "--reuse-changed and --rerun-changed"
            raise Refused(both, "contradict each other")
        return "reuse" if self.reuse_changed else "rerun" if self.rerun_changed else None

    @property
    def words(self) -> list[str]:
        """The words to type for these options."""
        reuse = [word for path in self.reuse or () for word in ("--reuse", path)]
        rerun = [word for path in self.rerun or () for word in ("--rerun", path)]
        rerun += ["--rerun-failed"] if self.rerun_failed else []
        rerun += [self.rerun_failed] if isinstance(self.rerun_failed, str) else []
        since = [] if self.rerun_from is None else ["--rerun-from", self.rerun_from]
        changed = [] if self.on_change is None else [f"--{self.on_change}-changed"]
        return [*reuse, *rerun, *since, *changed]

    @property
    def rerun_any(self) -> bool:
        """True if a step to run again was typed."""
        return bool(self.rerun or self.rerun_from or self.rerun_failed)

    def paths(self, journal: Journal, run_id: str) -> tuple[list[str], list[str]]:
        """The paths of steps whose record is kept, and of those that run again.

        The latter include all steps that began since ``rerun_from``.

        Raises:
            NotRecorded: ``rerun_from``, or a pattern, is not recorded.
        """
        from handrail.record.reading import began_since, history_of, paths_named, with_failed

        reuse = list(self.reuse or ())
        rerun = list(with_failed(self.rerun or (), self.rerun_failed))
        if rerun:
            rerun = paths_named(history_of(journal, run_id), rerun)
        if self.rerun_from is not None:
            rerun += began_since(history_of(journal, run_id), self.rerun_from)
        return reuse, rerun


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds(text: str | None, option: str, *, unit: str = "") -> float | None:
    """``30s``, ``15m``, ``2h``, ``1d`` or ``2w`` in seconds; None for None.

    A number alone counts ``unit``, and is refused if there is none.

    Raises:
        Refused: the text is none of these.
    """
    from handrail.cli.exits import Refused

    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw]?)", text)
    size = None if found is None else _UNITS.get(found[2] or unit)
    if found is None or size is None:
        examples = "90, 15m, 2h or 1d" if unit else "12h, 30d or 2w"
        raise Refused(f"{option} {text}", "is not a duration", f"Write {examples}.")
    return float(found[1]) * size


def _cassette_of(record: Path | None, replay: Path | None) -> Cassette | None:
    """The cassette that the options name, if they do.

    Raises:
        Refused: they name two, one that does not exist, or no folder.
    """
    from handrail.cli.exits import Refused

    if record is None and replay is None:
        return None
    if record is not None and replay is not None:
        raise Refused("--record and --replay", "cannot be given together", "Leave one out.")
    from handrail.agents.cassette.cassette import Cassette

    if record is not None:
        if record.exists() and not record.is_dir():
            raise Refused(f"--record {record}", "is a file", "Name a folder.")
        return Cassette(record, "record")
    assert replay is not None
    if not replay.is_dir():
        raise Refused(f"--replay {replay}", "there is no such folder", "--record creates one.")
    return Cassette(replay, "replay")


DRIVING = Driving()
STEERING = SteeringOptions()
CHANGED_STEPS = ChangedSteps()
