from __future__ import annotations

import re
import subprocess

import pytest

from tests.page.conftest import Open, faults
from tests.page.places import Place, is_live, opened_at, row, shows

pytestmark = [pytest.mark.page, pytest.mark.extra("playwright", "starlette", "uvicorn")]


def test_a_run_from_its_start_to_its_end(place: Place, open_page: Open) -> None:
    """It is watched, its driver is killed, it is resumed, answered, sent a signal, and succeeds."""
    page = open_page(place.address).page
    page.get_by_role("heading", name="No runs yet").wait_for()
    driver = place.drive("ship", "r1")
    opened_at(page, "r1")
    shows(page, "prepare", "running")
    place.let("go")
    shows(page, "slow", "running")
    assert row(page, "check").count() == 1  # of those that went well the members are folded
    driver.kill()
    page.get_by_text("No process is running it").wait_for()
    shows(page, "slow", "interrupted")
    page.get_by_role("button", name="Resume").click()
    place.let("slow")
    question = page.get_by_role("region", name="Question of merge?")
    question.get_by_role("radio", name="yes").check()
    question.get_by_role("button", name="Answer").click()
    shows(page, "merge?", "succeeded")
    question = page.get_by_role("region", name="Question of which?")
    question.get_by_role("button", name="Answer…").click()
    form = page.get_by_role("region", name="Answer which?")
    form.get_by_role("button", name="Answer").click()  # a version is empty text
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
    place.drive("ship", "r1")
    first = open_page(place.address).page
    first.goto(place.address.split("?")[0] + "#/runs/r1")
    asks = first.get_by_role("region", name="Question of merge?")
    asks.get_by_text("no", exact=True).wait_for()
    late = open_page("about:blank", drawn=False)
    late.page.route("**/events?*", lambda route: route.abort())
    late.page.goto(place.address)
    late.page.goto(place.address.split("?")[0] + "#/runs/r1")
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
    opened_at(page, "r1")
    shows(page, "prepare", "running")
    server.kill()
    page.get_by_text("not live").wait_for()
    place.let("go")
    place.serve()
    is_live(page)
    shows(page, "slow", "running")
    paths = page.evaluate("[...document.querySelectorAll('[role=treeitem]')].map(one => one.id)")
    assert sorted(paths) == sorted(set(paths))
    opened.wrong.clear()  # of the server that was not there


def test_what_is_said_while_the_line_is_lost_is_shown(place: Place, open_page: Open) -> None:
    """An agent's words are all there, each once and in order, also for one who joins late."""
    server, address = place.serve()
    place.drive("chat", "r1")
    opened = open_page(address)
    page = opened.page
    opened_at(page, "r1")
    row(page, "talk").click()
    answer = page.get_by_role("region", name="Answer")
    answer.get_by_text("that was all").wait_for()
    place.let("one")
    answer.get_by_text("after one").wait_for()
    server.kill()
    server.join()
    page.get_by_text("not live").wait_for()
    place.let("two")
    words = place.folder / "runs" / "chat-r1" / "talk" / "answer.md"
    while "after two" not in words.read_text():
        page.wait_for_timeout(20)
    place.serve()
    is_live(page)
    place.let("three")
    answer.get_by_text("after three").wait_for()
    late = open_page(address).page
    late.goto(address.split("?")[0] + "#/runs/r1?step=talk")
    late.get_by_role("region", name="Answer").get_by_text("after three").wait_for()
    for one in (page, late):
        said = one.get_by_role("region", name="Answer").inner_text()
        assert said.strip() == words.read_text().strip()
    place.let("talked")
    page.get_by_role("complementary").get_by_text("a.py", exact=True).wait_for()
    opened.wrong.clear()  # of the server that was not there


def test_a_run_is_steered(place: Place, open_page: Open) -> None:
    """It is paused and goes on, a step is begun again and then given its output, it is stopped."""
    driver = place.drive("ship", "r1")
    opened = open_page(place.address)
    page = opened.page
    opened_at(page, "r1")
    shows(page, "prepare", "running")
    page.get_by_role("button", name="Pause").click()
    page.locator(".head .pill", has_text="paused").wait_for()
    page.keyboard.press("g")
    page.get_by_text("paused by").wait_for()
    opened_at(page, "r1")
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
    driver.join(10)
    assert driver.exitcode == 0


def test_failed_members_run_again_after_their_plan_is_seen(place: Place, open_page: Open) -> None:
    """A resume with a pattern, or of failed members, shows its plan first, and does that."""
    place.let("go")
    driver = place.drive("ship", "r1")
    opened = open_page(place.address)
    page = opened.page
    opened_at(page, "r1")
    shows(page, "slow", "running")
    driver.kill()
    page.get_by_text("No process is running it").wait_for()
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Resume with changes…").click()
    dialog = page.get_by_role("dialog")
    again = dialog.get_by_role("group", name="Run again")
    again.get_by_role("button", name="add one").click()
    again.get_by_role("textbox").fill("nothing/*")
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_role("alert").get_by_text("nothing/*").wait_for()
    opened.wrong.clear()  # the browser tells of each refusal
    again.get_by_role("textbox").fill("each/*")
    dialog.get_by_role("button", name="Show the plan").click()
    plan = dialog.get_by_role("region", name="The plan")
    plan.get_by_text("1 step keeps its recorded end").wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    assert plan.get_by_text("each/0/check").is_visible()
    assert faults(page) == []
    assert [one.inner_text().split() for one in plan.get_by_role("listitem").all()][:4] == [
        ["will", "run", path] for path in ("each", "each/0/check", "each/1/check", "each/2/check")
    ]
    dialog.get_by_role("button", name="Close").click()

    row(page, "each").click()
    page.get_by_role("button", name="Run failed members again…").click()
    assert dialog.get_by_role("textbox", name="Failed members again").input_value() == "each"
    dialog.get_by_role("button", name="Show the plan").click()
    plan.get_by_text("each/1/check").wait_for()
    assert plan.get_by_text("each/2").count() == 0
    dialog.get_by_role("button", name="Resume", exact=True).click()
    place.let("slow")
    shows(page, "merge?", "waiting")
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    page.get_by_text(re.compile("^resumed, .* to run again$")).wait_for()


def test_a_run_is_forked_from_a_step_and_compared(place: Place, open_page: Open) -> None:
    """The fork keeps what had ended before the step; the comparison shows what is otherwise."""
    place.let("go")
    place.let("slow")
    place.drive("ship", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
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
    place.drive("ship", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    shows(page, "merge?", "waiting")
    page.keyboard.press("3")
    page.get_by_role("img", name="merge?, ask: waiting").wait_for()
    page.get_by_role("img", name="deploy, wait_for: not begun").wait_for()
    page.get_by_role("img", name=re.compile("^check, .*failed$")).click()
    page.get_by_role("complementary", name="Step each/1/check").wait_for()
    page.get_by_role("button", name="as it ran").click()
    page.get_by_text("for_each · 3 of 3, 1 failed").wait_for()
    page.get_by_role("img", name="merge?, ask: waiting").wait_for()
    assert page.get_by_role("img", name=re.compile("deploy")).count() == 0


def test_who_may_only_look_can_do_nothing(place: Place, open_page: Open) -> None:
    """A page that is read-only has no form, and no button that would change a run."""
    place.let("go")
    place.let("slow")
    _, address = place.serve(read_only=True)
    place.drive("ship", "r1")
    page = open_page(address).page
    opened_at(page, "r1")
    page.get_by_role("region", name="Question of merge?").wait_for()
    assert page.locator("form").count() == 0
    row(page, "slow").click()
    page.get_by_role("complementary").wait_for()
    buttons = "Resume|Pause|Cancel|Fork|Guide|Answer|Send|Skip|Complete|Retry"
    assert page.get_by_role("button", name=re.compile(buttons)).count() == 0


def test_no_key_no_page(place: Place, open_page: Open) -> None:
    """Without its key the page shows nothing but where the key is."""
    opened = open_page(place.address.split("?")[0], drawn=False)
    body = opened.page.locator("body")
    body.get_by_text("handrail ui").wait_for()
    opened.wrong.clear()


def test_an_agent_at_work_is_guided(place: Place, open_page: Open) -> None:
    """What a person writes goes into its session; the page shows what was said, and by whom."""
    place.drive("heed", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    shows(page, "write", "running")
    row(page, "write").click()
    page.get_by_role("region", name="Prompt").get_by_text("Write a book.").wait_for()
    page.get_by_role("complementary").get_by_role("button", name="Guide…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("be brief <b>please</b>")
    dialog.get_by_role("button", name="Send").click()
    page.get_by_text("Your guidance is on its way").wait_for()
    page.get_by_role("region", name="Prompt 2").get_by_text("be brief").wait_for()
    shows(page, "write", "succeeded")
    page.get_by_role("region", name="Answer").get_by_text("Brief.").wait_for()
    said = page.get_by_role("region", name="Guidance by somebody")
    said.get_by_text("be brief <b>please</b>").wait_for()
    page.get_by_role("tab", name="Inputs and result").click()
    page.get_by_role("row").filter(has_text="guided").wait_for()


def test_a_queue_is_changed_while_its_run_is_alive(place: Place, open_page: Open) -> None:
    """A task that is added is done, one that is dropped is not; then no button is left."""
    place.drive("backlog", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    row(page, "queue").click()
    queue = page.get_by_role("region", name="Queue of queue")
    queue.get_by_text("2 queued · 1 at work", exact=True).wait_for()
    queue.get_by_role("button", name="Add a task…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="id").fill("urgent")
    dialog.get_by_role("textbox", name="priority").fill("-1")
    dialog.get_by_role("button", name="Add").click()
    coming = queue.get_by_role("group", name="Changes that the run has not read")
    coming.get_by_text("add urgent with the priority -1, by somebody").wait_for()
    queue.get_by_role("button", name="Drop third").click()
    coming.get_by_text("drop third, by somebody").wait_for()
    place.let("go")
    shows(page, "urgent", "running")
    queue.get_by_text("2 queued · 1 at work · 1 done · 1 refused", exact=True).wait_for()
    waiting = queue.get_by_role("region", name="Queued tasks").get_by_role("row")
    assert [line.split()[0] for line in waiting.all_inner_texts()[1:]] == ["second", "found"]
    assert coming.count() == 0
    place.let("slow")
    shows(page, "urgent", "succeeded")
    page.locator(".head .pill", has_text="succeeded").wait_for()
    queue.get_by_text("4 done · 1 refused", exact=True).wait_for()
    assert queue.get_by_role("button").count() == 0
    page.get_by_role("tab", name="Inputs and result").click()
    result = page.get_by_role("region", name="Result", exact=True)
    assert "first found second urgent" in result.inner_text()
    did = page.get_by_role("row").filter(has_text="changed the queue of")
    assert did.count() == 2


def test_a_step_that_waits_for_a_claim_says_behind_whom(place: Place, open_page: Open) -> None:
    """Its row shows that it waits, for what and behind whom, until it has it."""
    subprocess.run(["git", "init", "--quiet", str(place.folder)], check=True)
    place.drive("claims", "r1")
    page = open_page(place.address).page
    opened_at(page, "r1")
    shows(page, "tag", "running")
    page.keyboard.press("g")
    place.drive("claims", "r2")
    opened_at(page, "r2")
    shows(page, "tag", "waiting")
    row(page, "tag").get_by_text("waits for git, behind step 'tag' of run r1").wait_for()
    place.let("go")
    shows(page, "tag", "succeeded")
    row(page, "tag").get_by_text("waits for").wait_for(state="detached")
