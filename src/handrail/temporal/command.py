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
    """Run a one-process cluster on this machine until Ctrl-C.

    Parameters
    ----------
    modules
        FILE.py or MODULE with workflows to serve, as `handrail worker` does; repeatable.
    port
        The port to listen on.
    ui_port
        The port of its web page.
    file
        The file for its runs; by default .handrail/temporal.db in this folder.
    """
    from handrail.temporal.place import require_extra

    require_extra()
    from handrail.temporal.worker_command import dev as start

    return start(port, ui_port, file, modules)
