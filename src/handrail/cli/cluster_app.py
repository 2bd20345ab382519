"""``handrail temporal``: a cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

temporal = App(name="temporal", help="A Temporal cluster on this machine, for a first try.")


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
    from handrail.cli.cluster import require_extra

    require_extra()
    from handrail.cli.cluster_worker import dev as start

    return start(port, ui_port, file, modules)
