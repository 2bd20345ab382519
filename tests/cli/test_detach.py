"""``run --detach``: a run that is driven apart from who began it, and waits to be answered."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from handrail import SqliteJournal
from handrail.ports.journal import RunInfo
from handrail.record.status import shown_status
from tests.cli.conftest import Cli, notes
from tests.cli.machines import pause, until

JOURNAL = Path(".handrail", "runs.db")


def info_of(run_id: str) -> RunInfo:
    """A run's line in the journal."""
    return next(one for one in SqliteJournal(JOURNAL).runs() if one.run_id == run_id)


@pytest.fixture
def begun(cli: Cli, durable: Path) -> Generator[Callable[..., dict[str, Any]]]:
    """Begins a detached run; what is said of it. What is left of it is ended afterwards."""
    del durable
    ids: list[str] = []

    def begin(target: str, *words: str) -> dict[str, Any]:
        done = cli("run", f"durable.py:{target}", "--detach", "--json", *words)
        assert done.code == 0, done
        ids.append(done.data["run_id"])
        return dict(done.data)

    yield begin
    Path("go").touch()
    for run_id in ids:
        cli("stop", run_id)


def test_it_waits_at_a_question_until_somebody_answers(cli: Cli, begun: Any) -> None:
    """The command returns when the start is recorded; the run is in a session of its own, without a
    terminal, its log beside its files; the answer comes from another process, and is followed.
    """
    run = begun("asks")
    assert info_of(run["run_id"]).events >= 1
    until(lambda: notes() == ["before"])
    assert os.getsid(run["pid"]) == run["pid"] != os.getsid(0)
    assert Path(f"/proc/{run['pid']}/fd/0").readlink() == Path(os.devnull)
    until(lambda: "Merge it?" in Path(run["log"]).read_text("utf-8"))
    pause(0.5)  # it might be suspended
    info = info_of(run["run_id"])
    assert info.holder is not None
    assert (shown_status(info), info.holder.pid) == ("running", run["pid"])
    assert Path(run["log"]).parent == Path(f".handrail/runs/asks-{run['run_id']}").resolve()
    assert cli("answer", run["run_id"], "merge?", "yes").code == 0
    until(lambda: shown_status(info_of(run["run_id"])) == "succeeded")
    until(lambda: "merged: yes" in Path(run["log"]).read_text("utf-8"))
    assert notes() == ["before", "merged: yes"]


def test_a_run_that_was_stopped_goes_on_apart(cli: Cli, begun: Any) -> None:
    """`resume --detach` prints the id, and so does `run` with that id; a run that has ended has its
    result printed.
    """
    run = begun("asks", "--run-id", "r")
    until(lambda: notes() == ["before"])
    assert cli("stop", "r").code == 0
    assert shown_status(info_of("r")) == "suspended"
    again = cli("resume", "r", "--detach")
    assert (again.code, again.out) == (0, "r\n")
    assert f"driven by process {info_of('r').holder.pid}" in again.err  # type: ignore[union-attr]
    assert info_of("r").holder.pid != run["pid"]  # type: ignore[union-attr]
    assert cli("answer", "r", "merge?", "no").code == 0
    until(lambda: shown_status(info_of("r")) == "succeeded")
    assert cli("resume", "r", "--detach").out == "merged: no\n"
    assert notes() == ["before", "merged: no"]


def test_stop_without_a_run_stops_the_only_one(cli: Cli, begun: Any) -> None:
    """Of two it refuses and names both; without any it says so."""
    assert cli("run", "durable.py:asks", "--run-id", "over").code == 3
    assert cli("stop").out == "no run is running now\n"
    begun("asks", "--run-id", "a")
    begun("asks", "--run-id", "b")
    refused = cli("stop")
    assert (refused.code, "2 runs are running: a, b" in refused.err) == (2, True)
    assert cli("stop", "a").code == 0
    assert cli("stop", "--json").data["stopped"] == ["b"]
    assert cli("stop", "b", "--all").code == 2


@pytest.mark.extra("starlette", "uvicorn")
def test_the_page_of_a_detached_run_is_served_and_its_address_printed(
    process: Cli, durable: Path
) -> None:
    """The page is there for as long as the run is driven."""
    del durable
    done = process("run", "durable.py:asks", "--run-id", "r", "--ui", "--detach")
    try:
        (url,) = re.findall(r"http://\S+#/runs/r", done.err)
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(url.partition("#")[0], timeout=20) as page:
            assert page.status == 200
    finally:
        process("stop", "r")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py"], "there is no such file"),
        (["durable.py:dies", "--input", "third=1"], "third"),
        (["durable.py:asks", "--gates", "ask"], "a detached run has no terminal"),
    ],
)
def test_what_is_wrong_is_told_as_without_it(
    cli: Cli, durable: Path, words: list[str], said: str
) -> None:
    """At once, with the same exit code; no run was made."""
    del durable
    done = cli("run", *words, "--detach")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_inputs_are_read_before_it_lets_go(process: Cli, durable: Path) -> None:
    """Also those that come on stdin."""
    del durable
    Path("go").touch()
    told = process(
        "run", "durable.py:dies", "--detach", "--inputs", "-", text=json.dumps({"first": "x"})
    )
    assert told.code == 0
    until(lambda: shown_status(info_of(told.out.strip())) == "succeeded")
    assert notes()[0] == "x"
