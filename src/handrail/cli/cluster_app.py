"""The commands, and the options, of those who serve a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from handrail.cli.journal import Place

temporal = App(name="temporal", help="A Temporal cluster on this machine, for a first try.")


@Parameter(name="*")
@dataclass(frozen=True)
class Serving:
    """How runs of a cluster are served.

    Parameters
    ----------
    steps_only
        With --temporal: perform steps, and serve no workflows.
    workflows_only
        With --temporal: serve workflows, and perform no steps.
    max_activities
        With --temporal: perform at most so many steps at once.
    task_queue
        With --temporal: the task queue that is served; by default HANDRAIL_TASK_QUEUE, or
        [tool.handrail] task_queue, or "handrail".
    blobs
        With --temporal: the folder, or the address of fsspec, where values above 256 KiB lie; by
        default HANDRAIL_BLOBS, or [tool.handrail] blobs.
    """

    steps_only: Annotated[bool, Parameter(negative="")] = False
    workflows_only: Annotated[bool, Parameter(negative="")] = False
    max_activities: int | None = None
    task_queue: str | None = None
    blobs: str | None = None

    def serve(self, place: Place, modules: tuple[str, ...]) -> int | None:
        """Serve the cluster until Ctrl-C; the exit code. None if the place is none.

        Raises:
            Refused: there is no cluster that these options could be of.
        """
        from handrail.cli.cluster import ClusterPlace
        from handrail.cli.exits import Refused

        if isinstance(place, ClusterPlace):
            from handrail.cli.cluster_worker import serve

            return serve(place, modules, **vars(self))
        if modules or self != SERVING:
            why = "is of a worker of a cluster"
            said = modules[0] if modules else "--steps-only, --workflows-only or the like"
            raise Refused(said, why, "Name the cluster: --temporal ADDRESS[/NAMESPACE].")
        return None


SERVING = Serving()


@temporal.command
def dev(
    *modules: Annotated[str, Parameter(name="MODULE")],
    port: int = 7233,
    ui_port: int = 8233,
    file: Path | None = None,
) -> int:
    """Start a cluster of one process on the loopback, until Ctrl-C.

    Parameters
    ----------
    modules
        FILE.py or MODULE, whose workflows are served to it as by `handrail worker`; repeatable.
    port
        Where it listens.
    ui_port
        Where its page is served.
    file
        Where it keeps its runs; by default .handrail/temporal.db here.
    """
    from handrail.cli.cluster import require

    require()
    from handrail.cli.cluster_worker import dev as start

    return start(port, ui_port, file, modules)
