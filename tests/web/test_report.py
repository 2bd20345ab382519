from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, Steps, step, workflow
from handrail.model import events as ev
from handrail.model.folders import numbered, run_folder, step_folder
from handrail.record.state import RecordedRun, read_run
from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, secret_values
from handrail.web import report
from handrail.web.run_json import detail_of
from handrail.web.step_json import step_of
from handrail.web.texts import MOST_BYTES, Texts, texts_of

NASTY = "</script><script>alert(1)</script><!-- \u2028 & \x1b[31m"


@workflow
def mixed(text: str) -> Steps[str]:
    """A step, a group with a member that fails, and a question."""
    yield from step("say").call(str.upper, text)
    yield from step("each").for_each(
        [1, 0], lambda n: step("divide").call(lambda: 1 // n), on_error="continue"
    )
    yield from step("sure?").ask(NASTY, type=dict[str, int])
    return text


def told(*, text: str = NASTY) -> RecordedRun:
    """The run of it, as it is read from the journal."""
    executor = Executor(workflows=[mixed])
    executor.run_sync(mixed, text)
    (info,) = executor.journal.runs()
    return read_run(executor.journal, info, info.updated_at)


def parts(run: RecordedRun) -> tuple[Any, Any]:
    """What a step of it is read from."""
    return run.view, run.history


def data_in(html: str) -> dict[str, Any]:
    """What a report has in it."""
    found = re.search(r'id="handrail-data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_texts_of_a_run_neither_end_nor_begin_an_element() -> None:
    """A report has two scripts, the data and the page's own, whatever its texts say."""
    html = report.html_of(told(), made_at=1.0)
    assert 2 == html.lower().count("<script") == html.lower().count("</script>")
    assert "<!--" not in html
    assert data_in(html)["run"]["inputs"]["text"] == NASTY


def test_the_policy_of_a_report_allows_its_own_script_and_style_and_nothing_else() -> None:
    """The hashes in the security policy are those of the script and the style in the file."""
    html = report.html_of(told(), made_at=1.0)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert "unsafe" not in policy[1]
    for kind in ("style", "script"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy[1]


def test_a_report_asks_no_other_host() -> None:
    """Nothing in a report is loaded from anywhere: no address stands where one is loaded from."""
    html = report.html_of(told(), made_at=1.0)
    assert not re.search(r"""(?:src|href)=["'](?!data:)|@import|url\(\s*["']?http""", html)


def test_a_report_is_masked() -> None:
    """What the mask takes out is nowhere in the file."""
    secrets = {"A_TOKEN": "hunter2hunter2", "ANOTHER_TOKEN": "HUNTER2HUNTER2"}
    mask = Mask(secret_values(Secrets(), secrets))
    html = report.html_of(told(text="hunter2hunter2"), made_at=1.0, mask=mask)
    assert "hunter2hunter2" not in html.lower()


def test_steps_that_went_well_are_left_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that would be too large keeps what failed."""
    run = told(text="x" * 50_000)
    monkeypatch.setattr(report, "MOST_BYTES", 40_000)
    steps = data_in(report.html_of(run, made_at=1.0))["steps"]
    assert "each/1/divide" in steps
    assert "say" not in steps


def test_the_rows_say_when_a_step_was_and_how_large_its_group_is() -> None:
    """A row has what the tree and the timeline show of a step."""
    run = told()
    rows: Any = detail_of(run)["steps"]
    by_path = {row["path"]: row for row in rows}
    started = {one.path: one.at for one in run.history if isinstance(one, ev.StepStarted)}
    assert started["say"] == by_path["say"]["started_at"]
    assert by_path["say"]["ended_at"] >= by_path["say"]["started_at"]
    assert by_path["each"]["size"] == 2
    assert by_path["each/1/divide"]["state"] == "failed"
    assert None is by_path["sure?"]["ended_at"]


def test_a_gate_has_the_schema_of_its_answer() -> None:
    """A form can be made of what is told of a question."""
    gates: Any = detail_of(told())["gates"]
    assert gates[0]["schema"] == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_a_step_is_told_whole() -> None:
    """Of one step there are its output, or its traceback and the attempts that failed."""
    run = told()
    said = step_of(*parts(run), "say")
    assert said is not None
    assert NASTY.upper() == said["output"]
    failed: Any = step_of(*parts(run), "each/1/divide")
    assert "ZeroDivisionError" in failed["traceback"]
    assert [one["number"] for one in failed["tries"]] == [1]
    assert None is step_of(*parts(run), "nowhere")


def test_a_long_output_is_cut() -> None:
    """Of an output of more than a megabyte its beginning is told."""
    said = step_of(*parts(told(text="x" * 2_000_000)), "say")
    assert said is not None
    assert True is said["output_cut"]
    assert len(str(said["output"])) == 1024 * 1024


def test_prompts_and_answers_come_from_the_files_of_a_run(tmp_path: Path) -> None:
    """Turns are in order, a file that is too long gives its end, and a link is not followed."""
    folder = tmp_path / run_folder("w", "r") / step_folder("plan")
    folder.mkdir(parents=True)
    for number, text in enumerate(("one", "two"), 1):
        (folder / numbered("prompt.md", number)).write_text(text)
    (folder / "answer.md").write_text("first")
    (folder / "stdout").write_text("a" + "b" * MOST_BYTES)
    (tmp_path / "secret").write_text("no")
    (folder / "stderr").symlink_to(tmp_path / "secret")
    found = texts_of(tmp_path, "w", "r", "plan")
    assert found.turns == (("one", "first"), ("two", None))
    assert found.stdout == "b" * MOST_BYTES
    assert found.stderr == ""
    assert found.ends["stdout"] == MOST_BYTES + 1
    assert Texts() == texts_of(tmp_path, "w", "r", "nowhere")
