"""What the tests of the live page run in other processes: a workflow, who drives it, a server.

python live.py drive FOLDER RUN_ID    |    python live.py serve FOLDER [read-only]
"""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio

from handrail import ArtifactsSink, Executor, SqliteJournal, Steps, current, step, workflow

TOKEN = "a-token-of-tests"
FLOOD = 10 * 1024 * 1024
EVIL = "<script>alert('x')</script>"


@dataclass(frozen=True)
class Plan:
    """What is released."""

    version: str
    waves: int = 3
    notify: bool = True


async def wait_for(name: str) -> str:
    """Wait for a file beside the journal: the test says when a step ends."""
    folder = Path(str(current().config["folder"]))
    while not (folder / name).exists():  # noqa: ASYNC110  # another process makes it
        await anyio.sleep(0.02)
    return f"{name} came"


def checked(number: int) -> str:
    """Fail for one of them."""
    if number == 1:
        raise ValueError(f"number {number} is odd {EVIL}")
    return f"{number} is fine"


@workflow
def ship(task: str = "the fix") -> Steps[str]:
    """Wait, check some, ask twice, wait for a signal."""
    yield from step("prepare").call(wait_for, "go")
    yield from step("each").for_each(
        range(3), lambda n: step("check").call(checked, n), on_error="continue"
    )
    yield from step("slow").call(wait_for, "slow")
    answer = yield from step("merge?").ask(f"Merge {task}?", choices=["yes", "no"])
    plan = yield from step("which?").ask("Which release?", type=Plan)
    deployed = yield from step("deploy").wait_for("deployed", str)
    return f"{answer} {plan.version} {plan.waves} {deployed}"


@workflow
def flood(size: int = FLOOD) -> Steps[str]:
    """Print that much, and wait."""
    program = f"import sys\nfor n in range({size} // 64): print('x' * 63, flush=n % 512 == 0)"
    yield from step("print").command(
        [sys.executable, "-c", f"{program}\nimport time\ntime.sleep(60)"]
    )
    return "done"


@workflow
def many(count: int = 10_000) -> Steps[int]:
    """So many members, of which some fail; the last ones wait."""
    yield from step("each").for_each(
        range(count), lambda n: step("do").call(lambda: n).inline(), max_concurrency=100
    )
    return count


def executor_in(folder: Path) -> Executor:
    """Who drives the runs of a folder."""
    return Executor(
        journal=SqliteJournal(folder / "runs.db", lease_s=2),
        sinks=[ArtifactsSink(folder / "runs")],
        workflows=[ship, flood, many],
        config={"folder": str(folder)},
        linger_s=60,
    )


def serve(folder: Path, *, read_only: bool) -> None:
    """Serve the page on a free port, and print its address."""
    import uvicorn

    from handrail.web import create_app

    executor = executor_in(folder)
    app = create_app(
        executor.journal,
        token=TOKEN,
        executor=executor,
        artifacts=folder / "runs",
        read_only=read_only,
    )
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = folder / "port"
        listening.bind(("127.0.0.1", int(port.read_text()) if port.exists() else 0))
        port.write_text(str(listening.getsockname()[1]))
        print(f"http://127.0.0.1:{port.read_text()}/", flush=True)  # noqa: T201
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "serve":
        serve(Path(where), read_only=bool(rest))
    else:
        name, run_id = rest
        flow = {"ship": ship, "flood": flood, "many": many}[name]
        executor_in(Path(where)).options(run_id=run_id).run_sync(flow)
