"""``--temporal``: runs on a cluster, instead of runs in a journal on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from handrail.cli.exits import LEFT_AT_ONCE
from handrail.cli.journal import OpenedPlace
from handrail.errors import MissingExtra
from handrail.project import project_table

if TYPE_CHECKING:
    from handrail.temporal.journal import ClusterJournal

QUEUE_VARIABLE = "HANDRAIL_TASK_QUEUE"
BLOBS_VARIABLE = "HANDRAIL_BLOBS"
DEFAULT_QUEUE = "handrail"


@attrs.frozen
class ClusterPlace(OpenedPlace):
    """A cluster, and the task queue of its runs; ``blobs`` is the store of large values."""

    task_queue: str = attrs.field(init=False)
    blobs: str | None = attrs.field(init=False)

    settings: ClassVar[Mapping[str, str]] = {
        "temporal": "'ADDRESS:PORT' or 'ADDRESS:PORT/NAMESPACE'",
        "task_queue": "text",
        "blobs": "a folder, or an address of fsspec",
    }

    def __attrs_post_init__(self) -> None:
        require_extra()
        queue, blobs = settings()
        object.__setattr__(self, "task_queue", queue)
        object.__setattr__(self, "blobs", blobs)

    def find(self) -> ClusterJournal:
        """The cluster's runs as a journal.

        Raises:
            WrongUse: the address is invalid.
        """
        journal: ClusterJournal = _journal(self.address, self.task_queue, self.blobs)
        return journal

    make = find


def settings(queue: str | None = None, blobs: str | None = None) -> tuple[str, str | None]:
    """The task queue and the store of large values: typed, of the environment, or the project's."""
    table = project_table()
    queue = queue or os.environ.get(QUEUE_VARIABLE) or table.get("task_queue")
    return queue or DEFAULT_QUEUE, blobs or os.environ.get(BLOBS_VARIABLE) or table.get("blobs")


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

    LEFT_AT_ONCE.add("temporalio")
    split_address(address)
    return ClusterJournal(Caller(address, task_queue, blobs_at(blobs)))
