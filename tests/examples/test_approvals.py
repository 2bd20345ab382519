"""``examples/approvals.py``, as its clients see it, over restarts and under uvicorn."""

from __future__ import annotations

import json
import os
import signal
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
        assert client.post(f"/expenses/e-1?{query}").status_code == 400
        assert client.get("/expenses/e-1").status_code == 404


def test_a_small_expense_is_paid_at_once(tmp_path: Path) -> None:
    """No one is asked."""
    with TestClient(service(str(tmp_path / "approvals.db"))) as client:
        client.post("/expenses/e-2?what=tea&euros=3")
        assert until(lambda: client.get("/expenses/e-2").json(), "succeeded")["value"] == "paid"


@contextmanager
def uvicorn(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process of the service, as a unit starts it, and its address."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--timeout-graceful-shutdown", "5", "approvals:app"],
        cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "running on " in line:
                yield line.split("running on ")[1].split()[0], process
                break
    finally:
        process.kill()
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
