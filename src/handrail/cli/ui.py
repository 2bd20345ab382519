"""``handrail ui``: the page of a journal's runs in a browser."""

from __future__ import annotations

import contextlib
import secrets
import sys
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.exits import Exit
from handrail.cli.options import WHERE, Where
from handrail.cli.page import open_browser, page_of, socket_at
from handrail.web.app import HOST, serve


def ui(
    *,
    port: int = 8484,
    open_it: Annotated[bool, Parameter(name="--open")] = False,
    read_only: bool = False,
    where: Where = WHERE,
) -> int:
    """Show all runs of the journal in a browser, live, and act on them from there.

    The page is served to this machine alone, and the address that is printed has its token.

    Parameters
    ----------
    port
        Where; 0 takes a free one.
    open_it
        Open it in a browser.
    read_only
        Runs are looked at only.
    """
    place = where.place()
    token = secrets.token_urlsafe(24)
    app = page_of(place, place.make(), token, read_only=read_only)
    at = socket_at(port)
    url = f"http://{HOST}:{at.getsockname()[1]}/?token={token}"
    print(url, flush=True)
    print("handrail: the page is served until Ctrl-C", file=sys.stderr, flush=True)
    if open_it:
        open_browser(url)
    with contextlib.closing(at):
        serve(app, at)
    return Exit.SUCCEEDED
