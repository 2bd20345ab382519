"""``handrail mcp``: serve the workflows of this folder to an agent's client, over stdio."""

from __future__ import annotations

from handrail.cli.exits import Exit, Refused
from handrail.cli.options import WHERE, Where


def mcp(*, read_only: bool = False, where: Where = WHERE) -> int:
    """Serve this folder's workflows and runs to an agent's client, over stdio.

    A client starts this command itself. Within a step of a run, only what reads is offered.

    Parameters
    ----------
    read_only
        Offer only the tools that read: start, answer and stop nothing.
    """
    try:
        from handrail.mcp.server import serve
    except ModuleNotFoundError as error:
        raise Refused("mcp", f"{error.name} is missing", "Install handrail[mcp].") from error
    place = where.place(reads=True)
    place.is_there()  # refuses a place that is none
    serve(place, reads=read_only)
    return Exit.SUCCEEDED
