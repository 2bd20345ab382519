"""The log of a run on the page: what is recorded, in words, line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import Open
from tests.page.places import Place, has_lines, lines, opened_at, row, shows
from tests.page.test_report_page import many, release, written

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright", "starlette", "uvicorn")]


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory, pages: str) -> Iterator[str]:
    """The address of a run that waits for answers, and is only looked at."""
    place = Place(tmp_path_factory.mktemp("waiting"), pages)
    place.let("go")
    place.let("slow")
    place.drive("ship", "r1")
    yield place.address
    place.close()


@pytest.fixture
def log(waiting: str, open_page: Open) -> Any:
    """Its page, at its log."""
    page = open_page(waiting).page
    opened_at(page, "r1")
    shows(page, "merge?", "waiting")
    page.keyboard.press("4")
    lines(page).first.wait_for()
    return page


def test_the_log_grows_while_the_run_goes_on(place: Place, open_page: Open) -> None:
    """What happens is there as it happens, also in what was looked for."""
    place.drive("ship", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    page.get_by_role("tab", name="Log").click()
    lines(page).filter(has_text="ship began").wait_for()
    assert lines(page).filter(has_text="asks:").count() == 0
    page.get_by_role("searchbox").fill("MERGE?")
    page.get_by_text("No line fits.").wait_for()
    place.let("go")
    place.let("slow")
    lines(page).filter(has_text="asks: Merge the fix? [yes, no]").wait_for()
    assert lines(page).filter(has_text="prepare").count() == 0


def test_only_what_went_wrong_is_shown(log: Any) -> None:
    """A chip says how many lines it leaves, and leaves these."""
    log.get_by_role("button", name="2 errors").click()
    has_lines(log, 2)
    assert all("number 1 is odd" in text for text in lines(log).all_inner_texts())
    log.get_by_role("button", name="errors").click()
    lines(log).filter(has_text="prepare").first.wait_for()


def test_a_line_has_an_address(log: Any, waiting: str, open_page: Open) -> None:
    """Who is sent it sees that line, the event as it is recorded, and the step that it is of."""
    lines(log).filter(has_text="number 1 is odd").first.click()
    record = log.get_by_role("region", name="As it is recorded", exact=True)
    record.get_by_text('"error_type": "builtins.ValueError"').wait_for()
    found = log.url
    assert re.search(r"view=log&line=\d+$", found)
    other = open_page(waiting).page
    other.goto(found)
    other.get_by_role("region", name="As it is recorded", exact=True).wait_for()
    other.get_by_role("option", selected=True).filter(has_text="number 1 is odd").wait_for()
    other.get_by_role("button", name="Show the step").click()
    other.get_by_role("complementary", name="Step each/1/check").wait_for()
    other.keyboard.press("Escape")
    other.get_by_role("complementary", name="Event").wait_for()
    other.keyboard.press("Escape")
    other.get_by_role("complementary").wait_for(state="detached")
    assert other.url.endswith("view=log")


def test_a_line_that_was_found_is_seen_among_the_others(log: Any) -> None:
    """When the words are taken away the line that was chosen stays chosen, and is in sight."""
    log.get_by_role("searchbox").fill("GateOpened")
    has_lines(log, 1)
    lines(log).click()
    log.get_by_role("region", name="As it is recorded", exact=True).wait_for()
    log.get_by_role("searchbox").fill("")
    lines(log).filter(has_text="prepare").first.wait_for()
    chosen = log.get_by_role("option", selected=True).filter(has_text="asks: Merge")
    chosen.wait_for()
    assert chosen.evaluate("one => one.getBoundingClientRect().bottom <= innerHeight")


def test_the_log_is_read_with_keys_alone(log: Any) -> None:
    """From the search to the first line, down, into the event, and out again."""
    log.keyboard.press("/")
    log.keyboard.type("check")
    lines(log).filter(has_text="prepare").first.wait_for(state="detached")  # it is found
    log.keyboard.press("Enter")
    log.locator("[role=listbox]:focus").wait_for()
    log.keyboard.press("j")
    log.get_by_role("complementary", name="Event").wait_for()
    log.keyboard.press("j")
    log.keyboard.press("Enter")
    log.locator(".pane-body:focus").wait_for()
    log.keyboard.press("Escape")
    log.get_by_role("complementary").wait_for(state="detached")


def test_a_step_leads_to_its_lines(log: Any) -> None:
    """The log that is opened from a step has the lines of that step alone."""
    log.keyboard.press("1")
    row(log, "prepare").click()
    log.get_by_role("link", name="in the log").click()
    has_lines(log, 2)
    assert all("prepare" in text for text in lines(log).all_inner_texts())


def test_the_record_is_downloaded(log: Any) -> None:
    """The file has a JSON object a line, an event each."""
    with log.expect_download() as found:
        log.get_by_role("link", name="Download the record").click()
    assert found.value.suggested_filename == "r1.jsonl"
    text = Path(found.value.path()).read_text("utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "WorkflowStarted"


@pytest.mark.parametrize(("flow", "given"), [(release, "it"), (many, 500)], ids=["small", "large"])
def test_a_report_has_the_log(open_page: Open, tmp_path: Path, flow: Any, given: Any) -> None:
    """It is searched without a server; a line says where the raw event is to be had."""
    page = open_page(written(tmp_path, flow, given)).page
    page.keyboard.press("4")
    lines(page).first.wait_for()
    page.get_by_role("searchbox").fill("workflowstarted")
    has_lines(page, 1)
    lines(page).click()
    page.get_by_text("handrail export").wait_for()
    assert page.get_by_role("link", name="Download").count() == 0
