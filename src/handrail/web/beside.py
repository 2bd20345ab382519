"""The page of a journal's runs, served from this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import quote

from handrail import Executor
from handrail.cli.detaching import spawn_resume
from handrail.cli.exits import Refused
from handrail.cli.journal import Place
from handrail.cli.masking import mask
from handrail.cli.target import source_of_run, workflow_of
from handrail.cli.who import acting_user
from handrail.ports.journal import Journal, RunInfo
from handrail.system.own_files import open_private
from handrail.web.access import Access
from handrail.web.acting import Acting
from handrail.web.app import HOST, app_of, open_socket, serve_in_thread
from handrail.web.reading import Reader
from handrail.workspace.places import state_home


@contextlib.contextmanager
def serve_page(place: Place, journal: Journal) -> Generator[Callable[[str], None]]:
    """Serve the page in a thread during a drive; yields a function that prints its address."""
    token = secrets.token_urlsafe(24)
    at = socket_at(0)
    port = at.getsockname()[1]

    def print_address(run_id: str) -> None:
        url = f"http://{HOST}:{port}/?token={token}#/runs/{quote(run_id, safe='')}"
        print(f"handrail: {url}", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            open_browser(url)

    with serve_in_thread(page_of(place, journal, token), at):
        yield print_address


def page_of(
    place: Place,
    journal: Journal,
    token: str,
    *,
    read_only: bool = False,
    load_place: Callable[[], Place] | None = None,
) -> Any:
    """The page as an application; ``load_place`` loads the project's executor, to act on a run."""
    return app_of(
        Reader(journal, mask(), place.artifacts),
        Acting(
            journal,
            place.executor,
            _executor_loader(load_place or (lambda: place), journal),
            _resumer(place),
            partial(source_of_run, place=place),
        ),
        Access(token),
        read_only=read_only,
        by=acting_user(),
    )


def socket_at(port: int) -> socket:
    """A listening socket for this machine alone.

    Raises:
        Refused: the port cannot be listened on.
    """
    try:
        return open_socket(port)
    except OSError as error:
        why = f"cannot be listened on: {error.strerror or error}"
        raise Refused(f"--port {port}", why, "--port 0 picks a free one.") from None


def open_browser(url: str) -> None:
    """Show an address in a browser."""
    import webbrowser

    # The address has the token, and all users see the arguments of a browser: so it gets a file.
    folder = state_home() / "handrail"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / f"open-{os.getpid()}-{secrets.token_hex(4)}.html"
    with open_private(file, "w", encoding="utf-8") as stream:
        stream.write(f'<meta http-equiv="refresh" content="0;url={escape(url)}">')
    atexit.register(file.unlink, missing_ok=True)
    # Some browsers print to the terminal, and some never return.
    threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()


def _executor_loader(
    load_place: Callable[[], Place], journal: Journal
) -> Callable[[RunInfo], Executor]:
    """A function that returns an executor with a run's workflow, imported from its TARGET."""

    def load_executor(info: RunInfo) -> Executor:
        here = Path.cwd()
        try:
            return Executor(
                journal=journal, workflows=[workflow_of(info, load_place(), quiet=True)[0]]
            )
        finally:
            os.chdir(here)

    return load_executor


def _resumer(place: Place) -> Callable[[RunInfo, Sequence[str]], None]:
    """A function that resumes a run in a process of its own, which outlives the page."""
    here = Path.cwd()

    def resume_elsewhere(info: RunInfo, more: Sequence[str]) -> None:
        process, log = spawn_resume(place, info, here, more)
        log.close()
        threading.Thread(target=process.wait, daemon=True).start()

    return resume_elsewhere
