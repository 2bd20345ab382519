from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import Opened, faults
from tests.page.live import TOKEN

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright", "starlette", "uvicorn")]

Open = Callable[..., Opened]
LIVE = Path(__file__).with_name("live.py")


class Place:
    """A folder with a journal, a server of its page, and who drives its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A process of ``live.py``."""
        command = [sys.executable, str(LIVE), words[0], str(self.folder), *words[1:]]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        found = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here)
        self._started.append(found)
        return found

    def serve(self, *words: str) -> tuple[subprocess.Popen[str], str]:
        """A server, and the address that lets one in."""
        server = self.start("serve", *words)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        return server, f"{address}?token={TOKEN}"

    def drive(self, name: str, run_id: str) -> subprocess.Popen[str]:
        """A process that drives a run; it comes back when the run is in the journal."""
        found = self.start("drive", name, run_id)
        until = time.monotonic() + 20
        log = self.folder / "runs" / f"{name}-{run_id}" / "events.jsonl"
        while not log.exists() and time.monotonic() < until:
            assert found.poll() is None
            os.sched_yield()
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


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A fresh one."""
    found = Place(tmp_path)
    yield found
    found.close()


def row(page: Any, name: str) -> Any:
    """The row of a step in the tree."""
    return page.get_by_role("treeitem").filter(
        has=page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$"))
    )


def shows(page: Any, name: str, state: str) -> None:
    """Wait until a step is shown in a state."""
    row(page, name).locator(f".icon.s-{state}").wait_for()


def test_a_run_from_its_start_to_its_end(place: Place, open_page: Open) -> None:
    """It is watched, its driver is killed, it is resumed, answered, sent a signal, and succeeds."""
    _, address = place.serve()
    page = open_page(address).page
    page.get_by_role("heading", name="No runs yet").wait_for()
    driver = place.drive("ship", "r1")
    page.get_by_role("link", name=re.compile("r1")).click()
    shows(page, "prepare", "running")
    place.let("go")
    shows(page, "slow", "running")
    assert row(page, "check").count() == 1  # of those that went well the members are folded
    driver.send_signal(signal.SIGKILL)
    page.get_by_text("No process is running it").wait_for()
    shows(page, "slow", "interrupted")
    page.get_by_role("button", name="Resume").click()
    place.let("slow")
    question = page.get_by_role("region", name="Question of merge?")
    question.get_by_role("radio", name="yes").check()
    question.get_by_role("button", name="Answer").click()
    shows(page, "merge?", "succeeded")
    question = page.get_by_role("region", name="Question of which?")
    question.get_by_role("button", name="Answer").click()  # a version is empty text
    shows(page, "which?", "succeeded")
    page.get_by_role("button", name="Send signal…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("today")
    dialog.get_by_role("button", name="Send").click()
    page.locator(".head .pill", has_text="succeeded").wait_for()
    page.get_by_role("tab", name="Inputs and result").click()
    assert "yes  3 today" in page.get_by_role("region", name="Result", exact=True).inner_text()


def test_who_was_first_is_told(place: Place, open_page: Open) -> None:
    """Of two who answer the second is told what the first said; a cut line is told as well."""
    place.let("go")
    place.let("slow")
    _, address = place.serve()
    place.drive("ship", "r1")
    late = open_page("about:blank")
    late.page.route("**/events?*", lambda route: route.abort())
    late.page.goto(address)
    late.page.goto(address.split("?")[0] + "#/runs/r1")
    first = open_page(address).page
    first.goto(address.split("?")[0] + "#/runs/r1")
    for page in (first, late.page):
        page.get_by_role("region", name="Question of merge?").get_by_text(
            "no", exact=True
        ).wait_for()
    late.page.get_by_text("not live").wait_for()
    first.get_by_role("radio", name="no").check()
    first.get_by_role("button", name="Answer").click()
    shows(first, "merge?", "succeeded")
    late.page.get_by_role("radio", name="yes").check()
    late.page.get_by_role("button", name="Answer").click()
    late.page.get_by_role("status").get_by_text("was first").wait_for()
    assert 'answered "no"' in late.page.get_by_role("status").last.inner_text()
    late.wrong.clear()  # what was refused is in the console


def test_a_server_that_was_gone_is_found_again(place: Place, open_page: Open) -> None:
    """What happened while the line was lost, which the page says, is shown when it is back."""
    server, address = place.serve()
    place.drive("ship", "r1")
    opened = open_page(address)
    page = opened.page
    page.get_by_role("link", name=re.compile("r1")).click()
    shows(page, "prepare", "running")
    server.send_signal(signal.SIGKILL)
    page.get_by_text("not live").wait_for()
    place.let("go")
    place.serve()
    page.get_by_text("live", exact=True).wait_for()
    shows(page, "slow", "running")
    paths = page.evaluate("[...document.querySelectorAll('[role=treeitem]')].map(one => one.id)")
    assert sorted(paths) == sorted(set(paths))
    opened.wrong.clear()  # of the server that was not there


def test_a_run_is_steered(place: Place, open_page: Open) -> None:
    """It is paused and goes on, a step is begun again and then given its output, it is stopped."""
    _, address = place.serve()
    driver = place.drive("ship", "r1")
    opened = open_page(address)
    page = opened.page
    page.get_by_role("link", name=re.compile("r1")).click()
    shows(page, "prepare", "running")
    page.get_by_role("button", name="Pause").click()
    page.locator(".head .pill", has_text="paused").wait_for()
    place.let("go")
    shows(page, "prepare", "succeeded")
    assert row(page, "each").count() == 0
    page.get_by_role("button", name="Unpause").click()
    shows(page, "slow", "running")
    row(page, "slow").click()
    page.get_by_role("button", name="Skip").click()
    page.get_by_text("has neither .default() nor .skip_on_error()").wait_for()
    opened.wrong.clear()  # the browser tells of each refusal
    page.get_by_role("button", name="Retry").click()
    page.get_by_text("slow begins again").wait_for()
    page.get_by_role("button", name="Complete with…").click()
    page.get_by_role("dialog").get_by_role("textbox").fill('"by hand"')
    page.get_by_role("dialog").get_by_role("button", name="Complete").click()
    shows(page, "slow", "succeeded")
    page.get_by_role("region", name="Output").get_by_text("by hand").wait_for()
    page.get_by_text("given by").first.wait_for()
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Stop, to resume later").click()
    page.locator(".head .pill", has_text="suspended").wait_for()
    assert driver.wait(10) is not None


def test_a_run_is_forked_from_a_step_and_compared(place: Place, open_page: Open) -> None:
    """The fork keeps what had ended before the step; the comparison shows what is otherwise."""
    place.let("go")
    place.let("slow")
    _, address = place.serve()
    place.drive("ship", "r1")
    page = open_page(address).page
    page.get_by_role("link", name=re.compile("r1")).click()
    row(page, "slow").click()
    page.get_by_role("button", name="Fork from here…").click()
    page.get_by_role("textbox", name="output").fill('"another"')
    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_text("forked from").wait_for()
    shows(page, "each", "succeeded")
    row(page, "slow").click()
    page.get_by_role("region", name="Output").get_by_text("another").wait_for()
    page.get_by_role("link", name="compare").click()
    changed = page.get_by_role("region", name="slow", exact=True)
    assert "another" in changed.inner_text()


def test_the_graph_shows_what_is_to_come(place: Place, open_page: Open) -> None:
    """A workflow's steps stand in its graph by how they are, and those that have not begun, too."""
    place.let("go")
    place.let("slow")
    _, address = place.serve()
    place.drive("ship", "r1")
    page = open_page(address).page
    page.get_by_role("link", name=re.compile("r1")).click()
    shows(page, "merge?", "waiting")
    page.keyboard.press("3")
    page.get_by_role("img", name="merge?, ask: waiting").wait_for()
    page.get_by_role("img", name="deploy, wait_for: not begun").wait_for()
    page.get_by_role("img", name=re.compile("^check, .*failed$")).click()
    page.get_by_role("complementary", name="Step each/1/check").wait_for()
    page.get_by_role("button", name="as it ran").click()
    page.get_by_role("img", name="merge?, ask: waiting").wait_for()
    assert page.get_by_role("img", name=re.compile("deploy")).count() == 0


def test_who_may_only_look_can_do_nothing(place: Place, open_page: Open) -> None:
    """A page that is read-only has no form, and no button that would change a run."""
    place.let("go")
    place.let("slow")
    _, address = place.serve("read-only")
    place.drive("ship", "r1")
    page = open_page(address).page
    page.get_by_role("link", name=re.compile("r1")).click()
    page.get_by_role("region", name="Question of merge?").wait_for()
    assert page.locator("form").count() == 0
    row(page, "slow").click()
    page.get_by_role("complementary").wait_for()
    buttons = "Resume|Pause|Cancel|Fork|Guide|Answer|Send|Skip|Complete|Retry"
    assert page.get_by_role("button", name=re.compile(buttons)).count() == 0


def test_a_program_that_prints_ten_megabytes_stays_bounded(place: Place, open_page: Open) -> None:
    """Its end is shown as it comes; what the page holds of it does not grow with it."""
    _, address = place.serve()
    place.drive("flood", "r1")
    page = open_page(address).page
    page.get_by_role("link", name=re.compile("r1")).click()
    row(page, "print").click()
    page.get_by_role("region", name="Printed").wait_for()
    output = place.folder / "runs" / "flood-r1" / "print" / "stdout"
    until = time.monotonic() + 30
    while output.stat().st_size < 10 * 1024 * 1024 and time.monotonic() < until:
        page.wait_for_timeout(100)
    page.wait_for_timeout(1000)
    assert len(page.get_by_role("region", name="Printed").inner_text()) < 40_000
    assert page.evaluate("performance.memory.usedJSHeapSize") < 60 * 1024 * 1024


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everyone_can_act(place: Place, open_page: Open, dark: bool) -> None:
    """Axe finds nothing in the list, in forms, menus, dialogs, notices and the comparison."""
    place.let("go")
    place.let("slow")
    _, address = place.serve()
    place.drive("ship", "r1")
    page = open_page(address, dark=dark).page
    page.get_by_role("link", name=re.compile("r1")).wait_for()
    wrong = {"list": faults(page)}
    page.get_by_role("link", name=re.compile("r1")).click()
    page.get_by_role("radio", name="yes").check()
    page.get_by_role("button", name="Answer").click()
    page.get_by_role("region", name="Question of which?").wait_for()
    wrong["form and notice"] = faults(page)
    page.get_by_role("button", name="More actions").click()
    wrong["menu"] = faults(page)
    page.get_by_role("button", name="Fork…").click()
    page.get_by_role("dialog").wait_for()
    wrong["dialog"] = faults(page)
    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_role("link", name="compare").click()
    page.get_by_role("checkbox").check()
    page.get_by_role("region", name="prepare").wait_for()
    wrong["comparison"] = faults(page)
    assert [one for one in wrong.items() if one[1]] == []


WORST_FRAMES = """() => {
  const frames = window.frames_ = [];
  let last = performance.now();
  requestAnimationFrame(function next(now) {
    frames.push(now - last);
    last = now;
    requestAnimationFrame(next);
  });
}"""


def test_ten_thousand_members_at_work_stay_fluid(place: Place, open_page: Open) -> None:
    """While 10,000 members begin and end, frames stay short and the page small."""
    _, address = place.serve()
    page = open_page(address).page
    page.get_by_role("heading", name="No runs yet").wait_for()
    page.evaluate(WORST_FRAMES)
    driver = place.drive("many", "r1")
    page.get_by_role("link", name=re.compile("r1")).click()
    row(page, "each").wait_for()
    page.locator("[data-main]").focus()
    page.keyboard.press("j")
    page.keyboard.press("l")
    driver.wait()
    page.locator(".head .pill", has_text="succeeded").wait_for(timeout=30_000)
    page.get_by_text("10,000 of 10,000").first.wait_for()
    assert page.get_by_role("treeitem").count() < 100
    frames = sorted(page.evaluate("frames_"))
    # One in a hundred may be long where two processors do all this at once.
    assert frames[int(len(frames) * 0.99) - 1] < 100, frames[-20:]


def test_no_key_no_page(place: Place, open_page: Open) -> None:
    """Without its key the page shows nothing but where the key is."""
    _, address = place.serve()
    opened = open_page(address.split("?")[0])
    body = opened.page.locator("body")
    body.get_by_text("handrail ui").wait_for()
    opened.wrong.clear()
