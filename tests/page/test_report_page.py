from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, FakeBackend, Steps, step, workflow
from handrail.agents.agent import Agent
from handrail.record.state import read_run
from handrail.web.graph_json import graph_of
from handrail.web.report import html_of
from handrail.web.texts import Texts
from tests.page.conftest import Open, faults

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright")]

EVIL = '</script><script>alert("x")</script><img src=x onerror=alert(1)>\x1b[31m\u202e'


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    version: str
    waves: int = 3


@workflow
def release(task: str) -> Steps[str]:
    """Some of each: an agent, a group with a member that fails, a chain, questions."""
    planner = Agent("planner", "Plan {{ task }}.", backend=FakeBackend([EVIL]))
    yield from step("plan").agent(planner, {"task": task})
    yield from step(f"{EVIL[9:24]} name".replace("/", "-")).call(str.upper, EVIL)
    yield from step("checks").parallel(
        step("lint").command("echo fine"), step("types").command("echo well")
    )
    yield from step("each").for_each(
        [1, 2, 0], lambda n: step("divide").call(lambda: 4 // n), on_error="continue"
    )
    yield from step("asks").parallel(
        step("which").ask(EVIL, type=Plan), step("sure").ask("Sure?", choices=["yes", EVIL])
    )
    return task


@workflow
def many(count: int) -> Steps[int]:
    """A group of so many members."""
    done = yield from step("each").for_each(
        range(count), lambda n: step("do").call(lambda: n).inline(), max_concurrency=100
    )
    return len(done)


def written(tmp_path: Path, flow: Any, given: Any) -> Path:
    """The report of a run, in a file."""
    executor = Executor(workflows=[flow])
    with ThreadPoolExecutor(1) as apart:  # Playwright keeps an event loop in this thread
        apart.submit(executor.run_sync, flow, given).result()
    journal = executor.journal
    (info,) = journal.runs()
    told = read_run(journal, info, info.updated_at)
    file = tmp_path / "report.html"
    texts = Texts(((EVIL, EVIL),), EVIL, "", EVIL + "x" * 1_000_000, EVIL)
    graph = graph_of(flow.definition.function)
    html = html_of(told, made_at=info.updated_at, graph=graph, texts=lambda _: texts)
    file.write_text(html, "utf-8")
    return file


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the first."""
    return written(tmp_path_factory.mktemp("report"), release, EVIL)


def test_a_report_shows_its_run_from_a_disk(open_page: Open, report: Path) -> None:
    """The steps, one of them whole, the questions, and that it is no live page."""
    page = open_page(report).page
    page.get_by_role("treeitem").filter(has_text="plan").click()
    pane = page.get_by_role("complementary")
    pane.get_by_role("heading", name="plan").wait_for()
    pane.get_by_role("region", name="Prompt").wait_for()
    page.get_by_text("report", exact=True).wait_for()
    page.get_by_text("began now").wait_for()  # whenever it is opened
    assert page.locator("[data-gate]").count() == 2
    assert page.locator("form").count() == 0


def test_texts_of_a_run_do_nothing(open_page: Open, report: Path) -> None:
    """Wherever a text of the run stands, it is text: no element comes of it, and it is cut."""
    page = open_page(report).page
    for view in "12345":
        page.keyboard.press(view)
    page.keyboard.press("1")
    for index in range(page.get_by_role("treeitem").count()):
        page.get_by_role("treeitem").nth(index).click()
        page.get_by_role("region", name="Printed", exact=True).wait_for()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    longest = (
        "Math.max(...[...document.querySelectorAll('pre')].map(one => one.textContent.length))"
    )
    assert page.evaluate(longest) < 100_000
    assert "\u202e" not in page.evaluate("document.body.innerText")


@pytest.mark.parametrize(
    ("dark", "width"), [(True, 1280), (False, 390)], ids=["dark, wide", "light, narrow"]
)
def test_everyone_can_use_it(open_page: Open, report: Path, dark: bool, width: int) -> None:
    """Axe finds nothing in any view, in the pane of a step, or in the help, and all fits."""
    page = open_page(report, dark=dark, width=width).page
    wrong: dict[str, Any] = {}

    def look(name: str) -> None:
        if found := faults(page):
            wrong[name] = found
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            wrong[f"{name} is too wide"] = wide

    for key, name in zip("12345", ("tree", "timeline", "graph", "log", "values"), strict=True):
        page.keyboard.press(key)
        page.get_by_role("tab", selected=True).wait_for()
        look(name)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    look("help")
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.get_by_role("treeitem").filter(has_text="divide").last.click()
    page.get_by_role("region", name="Printed", exact=True).wait_for()
    look("step")
    assert wrong == {}


def test_all_can_be_done_with_keys(open_page: Open, report: Path) -> None:
    """Search, move, fold, open and close, without a mouse."""
    page = open_page(report).page
    page.keyboard.press("/")
    page.keyboard.type("divide")
    page.get_by_role("treeitem").filter(has_text="checks").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    here = page.locator("[aria-selected=true][role=treeitem]")
    assert here.locator(".name").inner_text() == "divide"
    page.keyboard.press("Enter")
    page.locator(".pane-body:focus").wait_for()
    page.keyboard.press("Escape")
    page.locator(".pane").wait_for(state="detached")
    page.keyboard.press("h")
    assert here.locator(".name").inner_text() == "2"
    page.keyboard.press("h")
    assert here.get_attribute("aria-expanded") == "false"


def test_a_report_has_the_graph_of_its_workflow(open_page: Open, report: Path) -> None:
    """Its nodes are coloured by what the run did, and those that it did not come to are there."""
    page = open_page(report).page
    page.keyboard.press("3")
    page.get_by_role("img", name="plan, agent: succeeded").wait_for()
    page.get_by_role("img", name="lint, command: succeeded").wait_for()
