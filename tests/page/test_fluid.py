"""Much at once: 10,000 members, and agents and programs that say 10 MB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import Open
from tests.page.places import Place, has_lines, lines, opened_at, row, shows
from tests.page.test_report_page import many, written

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright", "starlette", "uvicorn")]

MOST_MS = 150
"""Of the processor, for one piece of work. On a quiet machine none takes 50, so that no frame takes
100; the same work was seen to take 71 on a shared one that was slow.
"""
MOST_HEAP = 60 * 1024 * 1024


@contextmanager
def nothing_long(browser: Any, page: Any) -> Iterator[None]:
    """No piece of work that is done meanwhile keeps the page from drawing for long.

    Counted is the time of the page's own thread: others who use the processor do not show in it.
    When the browser collects what is no longer used is its own affair.
    """
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    try:
        yield
    finally:
        found = json.loads(browser.stop_tracing())["traceEvents"]
    names = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in found
        if one.get("name") == "thread_name"
    }
    pieces = [
        (one["tdur"] / 1000, one["name"])
        for one in found
        if "tdur" in one
        and names.get((one["pid"], one["tid"])) == "CrRendererMain"
        and "GC" not in one["name"]
    ]
    assert len(pieces) > 50
    assert max(pieces)[0] < MOST_MS, sorted(pieces)[-5:]


def heap(page: Any) -> int:
    """The bytes that the page's script holds on to."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(int(one["value"]) for one in metrics if one["name"] == "JSHeapUsedSize")


def longest_text(page: Any) -> int:
    """The characters of the longest text that is in the page."""
    return page.evaluate(
        "Math.max(...[...document.querySelectorAll('pre')].map(one => one.textContent.length))"
    )


THROUGH_ALL = """async () => {
  const box = document.querySelector('[role=listbox]');
  for (let part = 0; part <= 60; part++) {
    box.scrollTop = box.scrollHeight * part / 60;
    await new Promise(done => setTimeout(done, 30));
  }
}"""


def test_ten_thousand_members_at_work_stay_fluid(
    place: Place, open_page: Open, browser: Any
) -> None:
    """While 10,000 members begin and end they are unfolded, searched and drawn in each view; who
    scrolls through the 40,000 lines of the log then sees each part, and the page holds few of them.
    """
    page = open_page(place.address).page
    page.get_by_role("heading", name="No runs yet").wait_for()
    with nothing_long(browser, page):
        driver = place.drive("many", "r1")
        opened_at(page, "r1")
        row(page, "each").wait_for()
        page.locator("[data-main]").focus()
        page.keyboard.press("j")
        page.keyboard.press("l")
        driver.join()
        page.locator(".head .pill", has_text="succeeded").wait_for(timeout=60_000)
        page.get_by_text("10,000 of 10,000").first.wait_for()
        for view in ("Timeline", "Graph", "Log", "Tree"):
            page.get_by_role("tab", name=view).click()
            page.get_by_role("tab", name=view, selected=True).wait_for()
        page.get_by_role("searchbox").fill("do 999")
        page.get_by_role("treeitem", name="9991").wait_for()
    assert page.get_by_role("treeitem").count() < 100
    page.get_by_role("searchbox").fill("")
    with nothing_long(browser, page):
        page.get_by_role("tab", name="Log").click()
        lines(page).first.wait_for()
        page.evaluate(THROUGH_ALL)
        lines(page).filter(has_text="many succeeded").or_(
            lines(page).filter(has_text="WorkflowCompleted")
        ).last.wait_for()
    assert lines(page).count() < 100
    page.get_by_role("searchbox").fill("each/9999/do StepCompleted")
    has_lines(page, 1)
    assert heap(page) < MOST_HEAP


@pytest.mark.parametrize(
    "who",
    [("talk", "talk", "Answer"), ("flood", "print", "Printed")],
    ids=["an agent", "a program"],
)
def test_ten_megabytes_of_words_stay_bounded(
    place: Place, open_page: Open, browser: Any, who: tuple[str, str, str]
) -> None:
    """The end of it is shown as it comes, and what the page holds does not grow with it."""
    flow, step, text = who
    page = open_page(place.address).page
    place.drive(flow, "r1")
    opened_at(page, "r1")
    shows(page, step, "running")
    with nothing_long(browser, page):
        row(page, step).click()
        page.get_by_role("region", name=text, exact=True).wait_for()
        page.get_by_role("region", name=text, exact=True).get_by_text("that was all").wait_for(
            timeout=60_000
        )
    assert longest_text(page) < 40_000
    assert heap(page) < MOST_HEAP


LONGEST_FRAME = """async () => {
  const box = document.querySelector('[role=tree]');
  for (let at = 0; at < 3571 * 60; ) {
    box.scrollTop = (at += 3571) % box.scrollHeight;
    await new Promise(requestAnimationFrame);
  }
}"""


def test_a_report_of_ten_thousand_members_is_fluid(
    open_page: Open, browser: Any, tmp_path: Path
) -> None:
    """Only what is seen is in the page, also while one scrolls through all of it."""
    page = open_page(written(tmp_path, many, 10_000)).page
    page.locator("[data-main]").focus()
    page.keyboard.press("j")
    page.keyboard.press("l")
    page.wait_for_function("document.querySelector('[role=tree]').scrollHeight > 250000")
    assert page.get_by_role("treeitem").count() < 100
    with nothing_long(browser, page):
        page.evaluate(LONGEST_FRAME)
    page.keyboard.press("End")
    page.locator("[aria-selected=true][role=treeitem]").wait_for()
