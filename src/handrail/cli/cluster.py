"""``--temporal``: runs on a cluster, instead of runs in a journal on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import attrs

from handrail.cli.exits import Refused
from handrail.cli.journal import Place
from handrail.errors import MissingExtra
from handrail.project import project_table

if TYPE_CHECKING:
    from handrail.temporal.journal import ClusterJournal

VARIABLE = "HANDRAIL_TEMPORAL"
QUEUE_VARIABLE = "HANDRAIL_TASK_QUEUE"
BLOBS_VARIABLE = "HANDRAIL_BLOBS"
DEFAULT_QUEUE = "handrail"


@attrs.frozen
class ClusterPlace(Place):
    """A cluster, and the task queue of its runs; ``blobs`` is the store of large values."""

    address: str = ""
    task_queue: str = DEFAULT_QUEUE
    blobs: str | None = None

    resumes_by_itself: ClassVar[bool] = True

    @property
    def file(self) -> Path:
        """The cluster's address, for people."""
        return Path(self.address)

    def is_there(self) -> bool:
        """True: only a request shows whether the cluster answers."""
        return True

    def find(self) -> ClusterJournal:
        """The cluster's runs as a journal.

        Raises:
            WrongUse: the address is invalid.
        """
        journal: ClusterJournal = _journal(self.address, self.task_queue, self.blobs)
        return journal

    def find_file(self) -> NoReturn:
        """Raise: a cluster keeps its record itself, not in a file.

        Raises:
            Refused: always.
        """
        hint = "`handrail export` writes a run to a file; --dir names a journal."
        raise Refused(self.address, "is a cluster, which keeps its own record", hint)

    make = find

    def _options(self) -> list[str]:
        return ["--temporal", self.address] if self.typed_location else []


def cluster_at(place: Place, address: str, typed: str) -> ClusterPlace:
    """The cluster at an address, with the other fields of ``place``; ``typed`` as in ``Place``.

    Raises:
        MissingExtra: temporalio is not installed.
    """
    require_extra()
    fields: dict[str, Any] = {one.name: getattr(place, one.name) for one in attrs.fields(Place)}
    queue, blobs = settings()
    fields |= {"typed_location": typed, "address": address, "task_queue": queue, "blobs": blobs}
    return ClusterPlace(**fields)


def settings(queue: str | None = None, blobs: str | None = None) -> tuple[str, str | None]:
    """The task queue and the store of large values: typed, of the environment, or the project's."""
    table = project_table()
    queue = queue or os.environ.get(QUEUE_VARIABLE) or table.get("task_queue")
    return queue or DEFAULT_QUEUE, blobs or os.environ.get(BLOBS_VARIABLE) or table.get("blobs")


def refuse_worker_options(typed: Mapping[str, object]) -> None:
    """Refuse options that say how steps are performed: the cluster's workers decide that.

    Raises:
        Refused: one of them was typed.
    """
    for name, value in typed.items():
        if value is not None:
            why = "does not apply here: the cluster's workers run the steps"
            hint = "Set it in the workers' executor: handrail worker --executor module:name."
            raise Refused(name, why, hint)


def refuse_process_options(typed: Mapping[str, object]) -> None:
    """Refuse options for runs that a process here drives: the cluster drives this one.

    Raises:
        Refused: one of them was typed.
    """
    for name, value in typed.items():
        if value:
            why = "applies only to runs of a process here; the cluster runs this one"
            hint = "Ctrl-C leaves the run to it; `handrail tail` shows how it ends."
            raise Refused(name, why, hint)


def require_extra() -> None:
    """Check that the client for clusters is installed.

    Raises:
        MissingExtra: temporalio is not.
    """
    if find_spec("temporalio") is None:
        raise MissingExtra("--temporal", "temporalio", "temporal")


@cache
def _journal(address: str, task_queue: str, blobs: str | None) -> Any:
    from handrail.temporal.blobs import blobs_at
    from handrail.temporal.caller import Caller
    from handrail.temporal.connecting import split_address
    from handrail.temporal.journal import ClusterJournal

    split_address(address)
    return ClusterJournal(Caller(address, task_queue, blobs_at(blobs)))
