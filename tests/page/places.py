"""A folder with a journal, in which other processes drive runs and serve the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.page import live
from tests.page.live import TOKEN

FORKS = get_context("forkserver")
"""Makes processes that have imported what they need."""
FORKS.set_forkserver_preload([live.__name__, "handrail.web", "uvicorn"])


class Place:
    """A folder with a journal, and who serves its page and drives its runs."""

    def __init__(self, folder: Path, pages: str = "") -> None:
        self.folder = folder
        self.address = f"{pages}{folder.name}/?token={TOKEN}"
        """Where a server that all tests share lets one in."""
        self._started: list[ForkServerProcess] = []

    def start(self, what: Callable[..., None], *given: Any) -> tuple[ForkServerProcess, str]:
        """A process that does this with the folder, and the first that it tells."""
        here, there = FORKS.Pipe(duplex=False)
        found = FORKS.Process(target=what, args=(there.send, self.folder, *given))
        found.start()
        there.close()
        self._started.append(found)
        return found, here.recv()

    def serve(self, *, read_only: bool = False) -> tuple[ForkServerProcess, str]:
        """A server of its own, and the address that lets one in."""
        server, address = self.start(live.serve, read_only)
        return server, f"{address}?token={TOKEN}"

    def drive(self, name: str, run_id: str) -> ForkServerProcess:
        """A process that drives a run; it comes back when the run is in the journal."""
        return self.start(live.drive, name, run_id)[0]

    def let(self, name: str) -> None:
        """Let the step end that waits for this file."""
        (self.folder / name).touch()

    def close(self) -> None:
        """End all that was started."""
        for one in self._started:
            one.kill()
            one.join()


def row(page: Any, name: str) -> Any:
    """The row of a step in the tree."""
    return page.get_by_role("treeitem").filter(
        has=page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$"))
    )


def shows(page: Any, name: str, state: str) -> None:
    """Wait until a step is shown in a state."""
    row(page, name).locator(f".icon.s-{state}").first.wait_for()


def is_live(page: Any) -> None:
    """Wait until the page says that it is told what happens."""
    page.get_by_role("banner").get_by_text("live", exact=True).wait_for()


def opened_at(page: Any, run_id: str) -> None:
    """Go from the list to a run."""
    page.get_by_role("link", name=re.compile(run_id)).click()
    page.locator(".head").wait_for()


def lines(page: Any) -> Any:
    """The lines that are in the page."""
    return page.get_by_role("listbox", name="Log").get_by_role("option")


def has_lines(page: Any, count: int) -> None:
    """Wait until there are so many lines."""
    lines(page).nth(count - 1).wait_for()
    lines(page).nth(count).wait_for(state="detached")
