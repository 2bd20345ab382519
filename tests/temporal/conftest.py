"""A cluster on the loopback for all tests of a session, and workers of it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from handrail import Executor
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.temporal.dev import _TUNED, DevServer
from handrail.testing.conformance import FLOWS as CONFORMANCE
from tests.temporal.flows import FLOWS
from tests.temporal.plant import TemporalPlant

WORKERS = 3
AT_ONCE = ("--dynamic-config-value", 'history.workflowIdReuseMinimalInterval="1ms"')
"""Without it an execution that goes on in another, or a resumed run, waits until a second is over:
these executions last for less.
"""

_STATUS = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The library of the cluster knows asyncio alone."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A cluster with a file, so that it survives being killed."""
    running = DevServer(tmp_path_factory.mktemp("cluster") / "db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("handrail.temporal.dev._TUNED", (*_TUNED, *AT_ONCE))
        running.start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def whole_plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalPlant]:
    """A cluster of its own, for the tests that kill."""
    folder = tmp_path_factory.mktemp("plant")
    plant = TemporalPlant(folder, "chaos", ["handrail.testing.conformance"])
    plant.start_workers(WORKERS)
    yield plant
    plant.close()


@pytest.fixture(scope="session")
async def client(server: DevServer) -> Client:
    """A client of it."""
    return await Client.connect(server.address)


@pytest.fixture(scope="session")
async def worker(client: Client) -> AsyncIterator[TemporalWorker]:
    """A worker in this process, which knows the workflows of the contract, and of these tests."""
    known = [*FLOWS, *CONFORMANCE]
    async with TemporalWorker(client, known, executor=Executor(), task_queue="tests") as running:
        yield running


@pytest.fixture
def engine(client: Client, worker: TemporalWorker) -> Callable[..., TemporalExecutor]:
    """Makes executors of the cluster."""
    del worker

    def make(**options: Any) -> TemporalExecutor:
        return TemporalExecutor(client, task_queue="tests", **options)

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where effects are noted."""
    return tmp_path / "effects"


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process at once: the library's threads may crash it while it ends by itself."""
    if "not temporal" in config.getoption("markexpr") or hasattr(config, "workerinput"):
        return
    status = config.stash.get(_STATUS, None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the status for the end of the process."""
    session.config.stash[_STATUS] = int(exitstatus)
