"""``handrail ui``, and ``--ui``: the page of a journal's runs."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import quote

from handrail import Executor
from handrail.cli.answer import whoever
from handrail.cli.apart import resumed_apart
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place
from handrail.cli.masking import mask
from handrail.cli.target import workflow_of
from handrail.ports.journal import Journal, RunInfo
from handrail.web.access import Access
from handrail.web.acting import Acting
from handrail.web.app import HOST, app_of, listening, serve, served
from handrail.web.reading import Reader


def ui(place: Place, *, port: int, opens: bool, read_only: bool) -> int:
    """Serve the page until Ctrl-C; the exit code."""
    token = secrets.token_urlsafe(24)
    app = _app(place, place.make(), token, read_only=read_only)
    at = _listening(port)
    url = f"http://{HOST}:{at.getsockname()[1]}/?token={token}"
    print(url, flush=True)
    print("handrail: the page is served until Ctrl-C", file=sys.stderr, flush=True)
    if opens:
        _open(url)
    with contextlib.closing(at):
        serve(app, at)
    return Exit.SUCCEEDED


@contextlib.contextmanager
def beside(place: Place, journal: Journal) -> Generator[Callable[[str], None]]:
    """Serve the page in a thread while a run is driven here; what prints where a run is seen."""
    token = secrets.token_urlsafe(24)
    at = _listening(0)
    port = at.getsockname()[1]

    def tell(run_id: str) -> None:
        url = f"http://{HOST}:{port}/?token={token}#/runs/{quote(run_id, safe='')}"
        print(f"handrail: {url}", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            _open(url)

    with served(_app(place, journal, token), at):
        yield tell


def _app(place: Place, journal: Journal, token: str, *, read_only: bool = False) -> Any:
    return app_of(
        Reader(journal, mask(), place.artifacts),
        Acting(journal, place.executor, _code_of(place, journal), _drive(place)),
        Access(token),
        read_only=read_only,
        by=whoever(),
    )


def _listening(port: int) -> socket:
    try:
        return listening(port)
    except OSError as error:
        why = f"cannot be listened on: {error.strerror or error}"
        raise Refused(f"--port {port}", why, "--port 0 takes a free one.") from None


def _open(url: str) -> None:
    import webbrowser

    # Some browsers print to the terminal, and some never return.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _code_of(place: Place, journal: Journal) -> Callable[[RunInfo], Executor]:
    """What makes an executor that knows a run's workflow, imported from where the run says."""

    def code_of(info: RunInfo) -> Executor:
        here = Path.cwd()
        try:
            return Executor(journal=journal, workflows=[workflow_of(info, place, quiet=True)[0]])
        finally:
            os.chdir(here)

    return code_of


def _drive(place: Place) -> Callable[[RunInfo], None]:
    """What goes on with a run, in a process of its own that outlives the page."""
    here = Path.cwd()

    def drive(info: RunInfo) -> None:
        process, log = resumed_apart(place, info, here)
        log.close()
        threading.Thread(target=process.wait, daemon=True).start()

    return drive
