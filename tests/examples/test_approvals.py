"""``examples/approvals.py``, as its clients see it, over restarts and under uvicorn."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from examples.approvals import service
from tests.examples.conftest import EXAMPLES

LAPTOP = "/expenses/e-1?what=laptop&euros=1200"


def until(ask: Callable[[], Any], wanted: str) -> Any:
    """What is told when the run has this status; each answer takes a moment."""
    for _ in range(2000):
        told = ask()
        if told["status"] == wanted:
            return told
    raise AssertionError(told)


def test_a_request_waits_for_a_person_over_a_restart(tmp_path: Path) -> None:
    """The one process asks, another takes the answer; of two answers the first counts."""
    file = str(tmp_path / "approvals.db")
    with TestClient(service(file)) as client:
        assert client.get("/expenses/e-1").status_code == 404
        assert client.post(LAPTOP).status_code == 200
        assert client.post(LAPTOP).status_code == 200  # sent twice, it is one request
        until(lambda: client.get("/expenses/e-1").json(), "suspended")
        assert client.get("/health").json() == {"waiting": 1}
    with TestClient(service(file)) as client:
        answer = "/expenses/e-1/answer?who=ana&value="
        assert client.post(f"{answer}maybe").status_code == 400
        assert client.post(f"{answer}yes").json() == {"answer": "yes"}
        assert client.post(f"{answer}no").status_code == 409
        assert until(lambda: client.get("/expenses/e-1").json(), "succeeded")["value"] == "paid"


@pytest.mark.parametrize("query", ["what=tea", "what=tea&euros=many", "euros=3"])
def test_a_request_that_lacks_something_is_refused(tmp_path: Path, query: str) -> None:
    """It is the client's mistake, and no run is begun."""
    with TestClient(service(str(tmp_path / "approvals.db"))) as client:
        refused = client.post(f"/expenses/e-1?{query}")
        assert (refused.status_code, refused.json()["error"][:19]) == (400, "Give what and euros")
        assert client.get("/expenses/e-1").status_code == 404


def test_a_refusal_tells_nothing_of_other_requests(tmp_path: Path) -> None:
    """Neither their ids nor what they were made with."""
    with TestClient(service(str(tmp_path / "approvals.db"))) as client:
        client.post(LAPTOP)
        refused = client.get("/expenses/e-9"), client.post("/expenses/e-1?what=laptop&euros=99")
        assert [told.status_code for told in refused] == [404, 409]
        assert not [told.text for told in refused if "e-1" in told.text or "1200" in told.text]


def test_a_small_expense_is_paid_at_once(tmp_path: Path) -> None:
    """No one is asked."""
    with TestClient(service(str(tmp_path / "approvals.db"))) as client:
        client.post("/expenses/e-2?what=tea&euros=3")
        assert until(lambda: client.get("/expenses/e-2").json(), "succeeded")["value"] == "paid"


@contextmanager
def uvicorn(folder: Path, workers: int = 1) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The service, as a unit starts it, once each worker is up: its address and its process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "approvals:app"]
    options = [f"--port={port}", f"--workers={workers}", "--timeout-graceful-shutdown=5"]
    process = subprocess.Popen([*command, *options], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    awaited = ["running on", *["startup complete"] * workers]
    try:
        for line in process.stderr:
            if told := next((words for words in awaited if words in line), None):
                awaited.remove(told)
            if not awaited:
                yield f"http://127.0.0.1:{port}", process
                break
    finally:
        process.terminate()
        process.communicate()


def ask(url: str, method: str = "GET") -> Any:
    """The JSON of an answer."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_process_of_uvicorn_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    """Stopped in good order or killed, the service forgets no request; a stop takes seconds."""
    with uvicorn(tmp_path) as (url, process):
        ask(f"{url}{LAPTOP}", "POST")
        until(lambda: ask(f"{url}/expenses/e-1"), "suspended")
        process.send_signal(how)
        assert process.wait(timeout=20) in {0, -how}
    with uvicorn(tmp_path) as (url, _):
        ask(f"{url}/expenses/e-1/answer?value=yes&who=ana", "POST")
        assert until(lambda: ask(f"{url}/expenses/e-1"), "succeeded")["value"] == "paid"


def test_two_workers_share_the_journal(tmp_path: Path) -> None:
    """Whichever process gets a request, each run is begun, answered and paid once."""
    with uvicorn(tmp_path, workers=2) as (url, process):
        urls = [f"{url}/expenses/e-{number}" for number in range(8)]
        for each in urls * 2:
            ask(f"{each}?what=laptop&euros=1200", "POST")
        for each in urls:
            until(lambda at=each: ask(at), "suspended")
            ask(f"{each}/answer?value=yes&who=ana", "POST")
        for each in urls:
            told = until(lambda at=each: ask(at), "succeeded")
            assert [one["attempts"] for one in told["steps"] if one["path"] == "pay"] == [1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) in {0, -signal.SIGTERM}
