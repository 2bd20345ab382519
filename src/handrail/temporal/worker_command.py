"""``handrail worker --temporal`` serves a cluster; ``handrail temporal dev`` starts one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place
from handrail.cli.settings import project_executor
from handrail.cli.target import find_from, place_of, workflows_at
from handrail.cluster_errors import ClusterUnreachable
from handrail.system.own_files import FOLDER
from handrail.temporal.connecting import settings
from handrail.temporal.dev import DevServer
from handrail.temporal.serving_options import Serving
from handrail.temporal.worker import TemporalWorker

DATABASE = "temporal.db"
_AGAIN_S = 1.0
"""How soon a worker looks again for a cluster that is not there yet."""


def serve(place: Place, modules: Sequence[str], serving: Serving) -> int:
    """Serve the workflows of these modules, and perform steps, until SIGTERM or Ctrl-C.

    Raises:
        Refused: an option or a module is wrong. ClusterUnreachable: the cluster refuses it, for
            example since it has no such namespace.
    """
    if serving.steps_only and serving.workflows_only:
        both = "--steps-only and --workflows-only"
        raise Refused(both, "together leave nothing to do", "Leave one out.")
    max_activities = serving.max_activities
    if max_activities is not None and max_activities < 1:
        raise Refused(f"--max-activities {max_activities}", "must be 1 or more")
    workflows = _workflows_in(modules)
    queue, store = settings(serving.task_queue, serving.blobs)
    most = {} if max_activities is None else {"max_activities": max_activities}
    address = str(place.file)
    worker = TemporalWorker(
        address,
        workflows,
        executor=place.executor or project_executor(None, None),
        task_queue=queue,
        blobs=store,
        steps=not serving.workflows_only,
        runs=not serving.steps_only,
        **most,
    )
    asyncio.run(_serve_worker(worker, f"task queue {queue!r} at {address}"))
    return Exit.SUCCEEDED


def _workflows_in(modules: Sequence[str]) -> list[Any]:
    find_from(Path.cwd())  # modules must have the names by which steps are found
    return [one for target in modules for one in workflows_at(target)]


async def _serve_worker(worker: TemporalWorker, where: str) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, _end, over)
    if not await _reached(worker, over):
        return
    try:
        tell(f"serves {where}: {worker}")
        await over.wait()
        tell("stopping; other workers take over its steps, or the next worker does")
    finally:
        await worker.__aexit__(None, None, None)


async def _reached(worker: TemporalWorker, over: asyncio.Event) -> bool:
    """Have the worker begin, once its cluster is there; False if it is to end before."""
    is_said = False
    while not over.is_set():
        try:
            await worker.__aenter__()
        except ClusterUnreachable as error:
            if not error.is_away:
                raise
            if not is_said:
                tell(f"waits for the cluster: {error}")
            is_said = True
        else:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), _AGAIN_S)
    return False


def _end(over: asyncio.Event) -> None:
    """The first signal ends the worker in order, the second at once."""
    if over.is_set():
        os._exit(Exit.INTERRUPTED)
    over.set()


def dev(port: int, ui_port: int, file: Path | None, modules: Sequence[str]) -> int:
    """Run a cluster on the loopback until Ctrl-C, and serve it these modules; the exit code.

    Raises:
        ServerNotStarted: its program is missing, or did not start. Refused: as for ``serve``.
    """
    _workflows_in(modules)  # so that an error in them is reported before the server starts
    file = file or Path(FOLDER) / DATABASE
    file.parent.mkdir(parents=True, exist_ok=True)
    server = DevServer(file.resolve(), port, ui_port)
    server.start()
    tell(f"a cluster is at {server.address}, its page at http://127.0.0.1:{ui_port}")
    try:
        if modules:
            return serve(place_of(None, None, {"temporal": server.address}), modules, Serving())
        tell(f"serve workflows: handrail worker --temporal {server.address} FILE.py")
        for signum in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.default_int_handler)
        code = server.wait()
    except KeyboardInterrupt:
        return Exit.SUCCEEDED
    finally:
        server.end()
    raise Refused("the cluster", f"ended unexpectedly with exit code {code}")
