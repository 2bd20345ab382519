from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.page import live
from tests.page.places import Place

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
UNUSED = (
    # The popup of each window's address bar: its process costs more than that of our page.
    ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
    # What Playwright turns off, and would not be: of two such flags the last one counts.
    ("AimEnabled", "HttpsUpgrades", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying"),
    ("OptimizationHints", "PaintHolding", "PreconnectToSearch"),
)
QUIET = [
    f"--disable-features={','.join(name for names in UNUSED for name in names)}",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say which browser it is."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    parser.addoption("--browser-path", default=found, help="a Chromium; else one on PATH")


FAULTS = """axe.run({ resultTypes: ['violations'] }).then(found =>
  found.violations.map(one => [one.id, one.nodes[0].html.slice(0, 200)]))"""


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Chromium without a window."""
    path = request.config.getoption("--browser-path")
    if path is None:
        pytest.fail(f"there is none of {', '.join(BROWSERS)}: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=QUIET, chromium_sandbox=False)
        yield found
        found.close()


class Opened:
    """A page, and what went wrong in it: errors, refused requests, dialogs."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.wrong.append(message.text)


Open: TypeAlias = Callable[..., Opened]
"""What opens a page."""


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open an address in a window of its own, up to when it is drawn unless it is none of the
    page's; at the end nothing may have gone wrong in any.
    """
    opened: list[Opened] = []
    contexts: list[Any] = []

    def open_(
        address: str | Path, *, dark: bool = False, width: int = 1280, drawn: bool = True
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 844},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        one = Opened(context.new_page())
        opened.append(one)
        one.page.set_default_timeout(15_000)
        one.page.goto(address.as_uri() if isinstance(address, Path) else address)
        if drawn:
            is_drawn(one.page)
        return one

    yield open_
    for context in contexts:
        context.close()
    assert [text for one in opened for text in one.wrong] == []


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of all places."""
    below = Place(tmp_path_factory.getbasetemp())
    _, address = below.start(live.serve_below)
    yield address
    below.close()


@pytest.fixture
def place(tmp_path: Path, pages: str) -> Iterator[Place]:
    """A fresh one."""
    found = Place(tmp_path, pages)
    yield found
    found.close()


def is_drawn(page: Any) -> None:
    """Wait until the page is drawn, and takes keys."""
    page.locator("main").wait_for()
    frame = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
    page.evaluate(f"{frame}.then(() => {frame})")


def faults(page: Any) -> list[Any]:
    """What axe finds wrong, each with the first element that it is wrong with."""
    from axe_playwright_python.base import AXE_SCRIPT

    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(FAULTS)
