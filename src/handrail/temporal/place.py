"""``--temporal``: runs on a cluster, instead of runs in a journal on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import attrs

from handrail.cli.exits import LEFT_AT_ONCE, Refused
from handrail.cli.journal import OpenedPlace
from handrail.cluster_errors import ClusterUnreachable
from handrail.errors import MissingExtra

if TYPE_CHECKING:
    from handrail.cli.doctor import Check
    from handrail.model.definition import WorkflowDefinition
    from handrail.temporal.journal import ClusterJournal
    from handrail.temporal.serving_options import Serving


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
        from handrail.temporal.connecting import settings

        queue, blobs = settings()
        object.__setattr__(self, "task_queue", queue)
        object.__setattr__(self, "blobs", blobs)

    @staticmethod
    def serving() -> type:
        """The options of a cluster's worker."""
        from handrail.temporal.serving_options import Serving

        return Serving

    def find(self) -> ClusterJournal:
        """The cluster's runs as a journal.

        Raises:
            WrongUse: the address is invalid.
        """
        journal: ClusterJournal = _journal(self.address, self.task_queue, self.blobs)
        return journal

    make = find

    @property
    def elsewhere(self) -> ClusterPlace:
        """The cluster."""
        return self

    def refuse(self, typed: Mapping[str, object]) -> None:
        """Refuse options that say how steps are performed, which its workers decide, and those for
        runs that a process here drives.

        Raises:
            Refused: one of them was typed.
        """
        for name, value in typed.items():
            if name == "--notify" and value:
                why = "applies only to runs of a process here; the cluster runs this one"
                hint = "Ctrl-C leaves the run to it; `handrail tail` shows how it ends."
                raise Refused(name, why, hint)
            if name != "--notify" and value is not None:
                why = "does not apply here: the cluster's workers run the steps"
                hint = "Set it in the workers' executor: handrail worker --executor module:name."
                raise Refused(name, why, hint)

    def drive(
        self, begin: Any, options: Any, data: TextIO | None, definition: WorkflowDefinition
    ) -> int:
        """Begin a run, and watch it to its end; the exit code."""
        from handrail.temporal.driving import drive

        return drive(begin, options, data, self, definition, (self.task_queue, self.blobs))

    def serve(self, modules: Sequence[str], serving: Serving) -> int:
        """Be a worker of the cluster, until a signal; the exit code."""
        from handrail.temporal.worker_command import serve

        return serve(self, modules, serving)

    def check(self) -> Check:
        """The cluster, and whether any worker serves its task queue."""
        from handrail.cli.doctor import Check

        try:
            count = len(self.find().workers())
        except ClusterUnreachable as error:
            where, said = self.address, str(error)
            return Check(name="cluster", ok=False, state="not reached", where=where, advice=said)
        start = f"Nobody serves {self.task_queue!r}: {self.command('worker', 'FILE.py')}"
        return Check(
            name="cluster",
            ok=True,
            state=f"ok, {count or 'no'} worker{'s' if count != 1 else ''}",
            where=self.address,
            advice="" if count else start,
        )


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
