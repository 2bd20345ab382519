"""Everybody can use the page: axe finds nothing, nothing is too wide, keys reach all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.page.conftest import Open, faults
from tests.page.places import Place, opened_at, row, shows

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright", "starlette", "uvicorn")]


class Looker:
    """Looks at each state of a page, and keeps what is wrong with it."""

    def __init__(self, page: Any, width: int) -> None:
        self.wrong: dict[str, Any] = {}
        self._page = page
        self._width = width

    def look(self, name: str) -> None:
        """Look at the page as it is now."""
        if found := faults(self._page):
            self.wrong[name] = found
        wide = self._page.evaluate("document.documentElement.scrollWidth")
        if wide > self._width:
            self.wrong[f"{name} is too wide"] = wide


@pytest.mark.parametrize(
    ("dark", "width"), [(False, 1280), (True, 390)], ids=["light, wide", "dark, narrow"]
)
def test_everyone_can_see_and_act(place: Place, open_page: Open, dark: bool, width: int) -> None:
    """Axe finds nothing in any view, form, menu, dialog, notice or comparison, and all fits."""
    place.let("go")
    place.let("slow")
    opened = open_page(place.address, dark=dark, width=width)
    page, home = opened.page, place.address.split("?")[0]
    looker = Looker(page, width)
    page.get_by_role("heading", name="No runs yet").wait_for()
    looker.look("no runs")
    place.drive("ship", "r1")
    place.drive("asks", "r2")
    page.get_by_role("link", name=re.compile("r2")).wait_for()
    page.get_by_role("link", name=re.compile("r1")).wait_for()
    looker.look("runs")
    opened_at(page, "r1")
    shows(page, "merge?", "waiting")
    look_at_views(page, looker)
    look_at_questions(page, looker)
    look_at_dialogs(page, looker)
    page.goto(f"{home}#/runs/r2?step=all%2Frelease")
    form = page.get_by_role("region", name="Answer all/release")
    for name in ("percent", "window"):
        form.get_by_role("checkbox", name=name).check()
    form.get_by_role("group", name="limits").get_by_role("button", name="add one").click()
    looker.look("a large form")
    page.goto(f"{home}#/diff/r1/r2")
    page.get_by_role("checkbox").check()
    page.get_by_role("region", name="prepare", exact=True).wait_for()
    looker.look("a comparison")
    page.goto(f"{home}#/runs/none")
    page.get_by_role("heading", name="There is no such run").wait_for()
    looker.look("no such run")
    opened.wrong.clear()  # the browser tells of it, too
    assert looker.wrong == {}


def look_at_views(page: Any, looker: Looker) -> None:
    """The run in each of its views, and a step that failed."""
    for view in ("Timeline", "Graph", "Log", "Inputs and result", "Tree"):
        page.get_by_role("tab", name=view).click()
        page.get_by_role("tab", name=view, selected=True).wait_for()
        looker.look(view)
    page.get_by_role("button", name="failed").click()
    row(page, "check").click()
    page.get_by_role("region", name="Error", exact=False).first.wait_for()
    looker.look("a step that failed")
    page.get_by_role("link", name="in the log").click()
    page.get_by_role("option", name="error: ").first.click()
    page.get_by_role("region", name="As it is recorded", exact=True).wait_for()
    looker.look("an event")
    page.get_by_role("button", name="Close the event").click()
    page.get_by_role("tab", name="Tree").click()
    row(page, "check").click()
    page.get_by_role("button", name="Close the step").click()
    page.get_by_role("button", name="failed").click()


def look_at_questions(page: Any, looker: Looker) -> None:
    """What is said of an answer, and the form of another question, which stays open."""
    page.get_by_role("radio", name="yes").check()
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_role("region", name="Question of which?").wait_for()
    looker.look("a notice")
    page.get_by_role("button", name="Answer…").click()
    page.get_by_role("region", name="Answer which?").wait_for()
    looker.look("a form")


def look_at_dialogs(page: Any, looker: Looker) -> None:
    """Those of the step that is open, which is closed then, and of its run."""

    def look(asked: str) -> None:
        page.get_by_role("button", name=asked).click()
        page.get_by_role("dialog").wait_for()
        looker.look(asked)
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")

    look("Complete with…")
    look("Fork from here…")
    page.get_by_role("button", name="Close the step").click()
    menu = page.get_by_role("button", name="More actions")
    menu.click()
    looker.look("the menu")
    menu.click()
    for asked in ("Send a signal…", "Fork…", "Compare with…", "Cancel the run…"):
        menu.click()
        look(asked)


REACHABLE = """() => {
  const all = 'button, a[href], input, select, textarea, [tabindex="0"]';
  const seen = [...document.querySelectorAll(all)].filter(one =>
    one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }));
  // Of a group of radios one is reached by Tab, and the others by arrow keys.
  const groups = new Set();
  return seen.filter(one => {
    if (one.type !== 'radio') return true;
    if (groups.has(one.name)) return false;
    groups.add(one.name);
    return true;
  }).length;
}"""
HERE = """() => {
  window.reached_ ??= new Set();
  const here = document.activeElement;
  if (here && here !== document.body) reached_.add(here.type === 'radio' ? here.name : here);
  return reached_.size;
}"""


def test_tab_reaches_all_that_can_be_used(place: Place, open_page: Open) -> None:
    """Every button, link and field of a run with questions and an open step is come to by Tab."""
    place.let("go")
    place.let("slow")
    place.drive("ship", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    shows(page, "merge?", "waiting")
    row(page, "slow").click()
    page.get_by_role("region", name="Output").wait_for()
    page.locator("body").click(position={"x": 1, "y": 1})
    wanted = page.evaluate(REACHABLE)
    assert wanted > 15
    reached = 0
    for _ in range(3 * wanted):
        page.keyboard.press("Tab")
        reached = page.evaluate(HERE)
        if reached == wanted:
            break
    assert reached == wanted


def test_a_question_is_answered_with_keys_alone(place: Place, open_page: Open) -> None:
    """`a` leads to the first question, arrows choose, Enter answers."""
    place.let("go")
    place.let("slow")
    place.drive("ship", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    page.get_by_role("region", name="Question of merge?").wait_for()
    page.keyboard.press("a")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    shows(page, "merge?", "succeeded")
    page.get_by_text("Your answer to merge? counts").wait_for()
    run = page.evaluate("fetch('api/runs/r1').then(answer => answer.json())")
    assert [act["value"] for act in run["acts"]] == ["no"]
