"""Questions of many types, several open at once, each answered by its form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.page.conftest import Open
from tests.page.places import Place, opened_at, shows

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright", "starlette", "uvicorn")]


def line_of(page: Any, path: str) -> Any:
    """A question among those of the run."""
    return page.get_by_role("region", name=f"Question of {path}")


def form_of(page: Any, path: str) -> Any:
    """The form of a question that takes more than a line."""
    line_of(page, path).get_by_role("button", name="Answer…").click()
    return page.get_by_role("region", name=f"Answer {path}")


def test_each_type_has_its_form(place: Place, open_page: Open) -> None:
    """What is entered comes to the workflow as a value of the question's type."""
    place.drive("asks", "r1")
    opened = open_page(place.address)
    page = opened.page
    opened_at(page, "r1")
    page.get_by_role("button", name="show 1 more question").click()

    sure = line_of(page, "all/sure")
    sure.get_by_role("button", name="Answer").click()
    sure.get_by_role("alert").get_by_text("choose yes or no").wait_for()
    sure.get_by_role("radio", name="yes").check()
    sure.get_by_role("button", name="Answer").click()
    shows(page, "sure", "succeeded")

    how_many = line_of(page, "all/many")
    how_many.get_by_role("textbox").fill("3.5")
    how_many.get_by_role("button", name="Answer").click()
    how_many.get_by_role("alert").get_by_text("a whole number is needed").wait_for()
    how_many.get_by_role("textbox").fill("3")
    how_many.get_by_role("textbox").press("Enter")
    shows(page, "many", "succeeded")

    line_of(page, "all/which").get_by_role("radio", name="half").check()
    line_of(page, "all/which").get_by_role("button", name="Answer").click()
    shows(page, "which", "succeeded")

    tags = form_of(page, "all/tags")
    for place_in_list, tag in enumerate(("a", "b", "c"), 1):
        tags.get_by_role("button", name="add one").click()
        tags.get_by_role("textbox", name=f"Answer {place_in_list}").fill(tag)
    tags.get_by_role("button", name="remove Answer 2").click()
    tags.get_by_role("button", name="Answer", exact=True).click()
    shows(page, "tags", "succeeded")

    release = form_of(page, "all/release")
    release.get_by_role("textbox", name="version").fill("4.2")
    release.get_by_role("radio", name="all").check()
    release.get_by_role("checkbox", name="percent").check()
    release.get_by_role("textbox", name="percent").fill("250")
    release.get_by_role("checkbox", name="window").check()
    release.get_by_role("textbox", name="day").fill("Monday")
    release.get_by_role("textbox", name="hours 2").fill("18")
    limits = release.get_by_role("group", name="limits")
    limits.get_by_role("button", name="add one").click()
    limits.get_by_role("textbox", name="name 1").fill("cpu")
    limits.get_by_role("textbox", name="limits cpu").fill("0.5")
    release.get_by_role("radio", name="whole number").check()
    release.get_by_role("textbox", name="note as whole number").fill("7")
    release.get_by_role("button", name="Answer", exact=True).click()
    page.locator(".head .pill", has_text="succeeded").wait_for()
    run = page.evaluate("fetch('api/runs/r1').then(answer => answer.json())")
    assert run["value"] == [
        {
            "version": "4.2",
            "ring": "all",
            "percent": 250,
            "window": {"day": "Monday", "hours": [9, 18]},
            "notify": [],
            "limits": {"cpu": 0.5},
            "note": 7,
        },
        True,
        3,
        "half",
        ["a", "c"],
    ]
