"""A cluster as a place of runs that its workers drive, for the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import attrs

from handrail.cli.exits import Refused
from handrail.cluster_errors import ClusterUnreachable
from handrail.temporal.place import ClusterPlace
from handrail.temporal.serving_options import Serving

if TYPE_CHECKING:
    from handrail.cli.doctor import Check
    from handrail.model.definition import WorkflowDefinition


@attrs.frozen
class ServedCluster(ClusterPlace):
    """A cluster whose workers drive the runs; it is its own ``Elsewhere``."""

    serving: ClassVar[type] = Serving

    @property
    def elsewhere(self) -> ServedCluster:
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

        return drive(begin, options, data, self, definition)

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
