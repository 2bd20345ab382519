"""A folder with a journal, in which other processes drive runs and serve the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.page.live import TOKEN

LIVE = Path(__file__).with_name("live.py")


class Place:
    """A folder with a journal, and who serves its page and drives its runs."""

    def __init__(self, folder: Path, pages: str = "") -> None:
        self.folder = folder
        self.address = f"{pages}{folder.name}/?token={TOKEN}"
        """Where a server that all tests share lets one in."""
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A process of ``live.py``."""
        command = [sys.executable, str(LIVE), words[0], str(self.folder), *words[1:]]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        found = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here)
        self._started.append(found)
        return found

    def serve(self, *words: str) -> tuple[subprocess.Popen[str], str]:
        """A server of its own, and the address that lets one in."""
        server = self.start("serve", *words)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        return server, f"{address}?token={TOKEN}"

    def drive(self, name: str, run_id: str) -> subprocess.Popen[str]:
        """A process that drives a run; it comes back when the run is in the journal."""
        found = self.start("drive", name, run_id)
        assert found.stdout is not None
        assert found.stdout.readline() == "begun\n"
        return found

    def let(self, name: str) -> None:
        """Let the step end that waits for this file."""
        (self.folder / name).touch()

    def close(self) -> None:
        """End all that was started."""
        for one in self._started:
            one.kill()
            one.wait()
            if one.stdout is not None:
                one.stdout.close()


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
