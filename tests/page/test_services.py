"""The services of the how-to pages, as processes that are killed, and the page in one of them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import Opened

httpx2 = pytest.importorskip("httpx2")

pytestmark = [pytest.mark.page, pytest.mark.extra("fastapi", "playwright", "starlette", "uvicorn")]

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def code_of(page: str) -> str:
    """The first block of a how-to page, which is the whole service."""
    found = re.search(r"```python\n(.*?)```", (HOW_TO / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


class Service:
    """A service that is started, killed and started again on one port. Mutable."""

    def __init__(self, folder: Path, code: str, argument: str) -> None:
        self._folder = folder
        (folder / "app.py").write_text(f"{code}\n\napp = service({argument!r})\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.home = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Any = None

    def start(self) -> None:
        """Start it, and a client of it."""
        words = ["-m", "uvicorn", "app:app", "--port", str(self.port), "--log-level", "error"]
        self._process = subprocess.Popen([sys.executable, *words], cwd=self._folder)
        self.client = httpx2.Client(base_url=self.home, timeout=20)
        while True:
            try:
                self.client.get("/openapi.json")
            except httpx2.TransportError:
                assert self._process.poll() is None
                time.sleep(0.05)  # noqa: TID251  # a server comes up in its own time
            else:
                return

    def kill(self) -> None:
        """Kill it, as nobody can prepare for."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self.client.close()


Make = Callable[[str, str], Service]


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Make]:
    """What makes a service of a how-to page."""
    made: list[Service] = []

    def make(page: str, argument: str) -> Service:
        made.append(Service(tmp_path, code_of(page), argument))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def reached(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """Ask until it is so."""
    until = time.monotonic() + 20
    while not wanted(found := look()):
        assert time.monotonic() < until, found
        time.sleep(0.02)  # noqa: TID251  # as above
    return found


def test_the_service_is_about_sixty_lines() -> None:
    """What somebody has to write for a service is no more than what the page shows."""
    lines = [line for line in code_of("web-service.md").splitlines() if line.strip()]
    assert 40 < len(lines) < 60


def test_a_service_goes_on_after_it_was_killed(make_service: Make) -> None:
    """It is killed while an order waits; the answer that comes after it drives the order on."""
    service = make_service("web-service.md", "orders.db")
    service.start()
    service.client.post("/orders/o-1?item=tea")

    def order() -> Any:
        return service.client.get("/orders/o-1").json()

    reached(order, lambda found: found["waits_for"])
    service.kill()
    service.start()
    assert [one["output"] for one in order()["steps"]] == [3, None]
    said = service.client.post("/orders/o-1/answer?answer=yes&who=ana")
    assert said.json() == {"answer": "yes"}
    service.kill()
    service.start()
    found = reached(order, lambda found: found["status"] == "succeeded")
    assert found["value"] == "tea: yes"
    told = service.client.get("/orders/o-1/events").text
    assert re.findall(r"^id: (\d+)", told, re.MULTILINE) == [
        str(n) for n in range(1, told.count("id: ") + 1)
    ]


def test_the_page_of_an_application_is_below_its_prefix(
    make_service: Make, open_page: Callable[..., Opened]
) -> None:
    """Who is logged in to the application sees its runs, acts under that name, over a crash."""
    service = make_service("page-in-an-app.md", ".")
    service.start()
    opened = open_page(f"{service.home}/runs/", drawn=False)
    page = opened.page
    page.get_by_text("handrail ui").wait_for()  # the door is closed
    opened.wrong.clear()
    page.evaluate("fetch('/login?name=ana&password=of-ana', { method: 'POST' })")
    service.client.post("/orders/o-1?item=tea")
    page.goto(f"{service.home}/runs#/runs/o-1")
    page.get_by_role("region", name="Question of approve").wait_for()
    service.kill()
    page.get_by_text("not live").wait_for()
    opened.wrong.clear()
    service.start()
    page.evaluate("fetch('/login?name=ana&password=of-ana', { method: 'POST' })")
    page.goto(f"{service.home}/runs/#/runs/o-1")
    page.reload()
    page.get_by_role("radio", name="yes").check()
    page.get_by_role("button", name="Answer").click()
    page.locator(".head .pill", has_text="succeeded").wait_for()
    page.get_by_role("tab", name="Inputs and result").click()
    page.get_by_role("cell", name="ana").wait_for()
    opened.wrong.clear()  # of the moments in which nobody was there, or knew it
