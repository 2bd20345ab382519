"""What a command drives runs with: of a journal on disk in this process, or on a cluster."""

from __future__ import annotations

from typing import Any, TextIO

import attrs

from handrail.cli.cluster import ClusterPlace
from handrail.cli.driving import Begin, Options, drive
from handrail.cli.journal import Place
from handrail.ports.journal import Journal


@attrs.frozen
class Session:
    """What runs of a journal on disk are driven with; ``data`` is where JSON goes, if it does."""

    options: Options
    data: TextIO | None
    place: Place
    journal: Journal

    def drive(self, begin: Begin, workflow: Any) -> int:
        """Drive what ``begin`` gives, a run of the workflow, to its end; the exit code."""
        definition = workflow.definition
        options, place = self.options, self.place
        if isinstance(place, ClusterPlace):
            from handrail.cli.cluster_drive import drive as watch

            return watch(begin, options, self.data, place, definition)
        return drive(begin, options, self.data, place, journal=self.journal, workflow=definition)
