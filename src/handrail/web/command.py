"""``handrail ui``: the page of a journal's runs in a browser."""

from __future__ import annotations

import contextlib
import secrets
import sys
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.exits import Exit
from handrail.cli.options import WHERE, Where
from handrail.web.app import HOST, serve
from handrail.web.beside import open_browser, page_of, socket_at


def ui(
    *,
    port: int = 8484,
    open_it: Annotated[bool, Parameter(name="--open")] = False,
    read_only: bool = False,
    where: Where = WHERE,
) -> int:
    """Show all runs of the journal live in a browser, and act on them there.

    Only this machine can open the page. The printed address includes its token.

    Parameters
    ----------
    port
        The port; 0 picks a free one.
    open_it
        Open the page in a browser.
    read_only
        Only show runs; allow no actions.
    """
    place = where.place(reads=True)
    token = secrets.token_urlsafe(24)
    app = page_of(place, place.make(), token, read_only=read_only, load_place=where.place)
    at = socket_at(port)
    url = f"http://{HOST}:{at.getsockname()[1]}/?token={token}"
    print(url, flush=True)
    print("handrail: the page is available until Ctrl-C", file=sys.stderr, flush=True)
    if open_it:
        open_browser(url)
    with contextlib.closing(at):
        serve(app, at)
    return Exit.SUCCEEDED
