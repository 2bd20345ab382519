"""An approval service: a request may wait for a person for weeks, over restarts and deploys.

    pip install '.[cli,web]' && uvicorn --app-dir examples approvals:app
    curl -X POST 'localhost:8000/expenses/e-1?what=laptop&euros=1200'
    curl 'localhost:8000/expenses/e-1'
    curl -X POST 'localhost:8000/expenses/e-1/answer?value=yes&who=ana'

One process drives the runs; their record is the file that APPROVALS_DB names, on a local disk.
Put a proxy before it that says who is who: here anyone may answer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from handrail import (
    Executor,
    GateClosed,
    HandrailError,
    InputsDiffer,
    RunNotFound,
    SqliteJournal,
    Steps,
    current,
    step,
    workflow,
)


@workflow(description="An expense, approved by a person if it is large, then paid")
def expense(what: str, euros: int) -> Steps[str]:
    """What became of it."""
    limit = yield from step("limit").call(limit_of, what)
    if euros > limit:
        answer = yield from step("approve").ask(
            f"Pay {euros} euros for {what}?",
            choices=["yes", "no"],
            timeout=14 * 86_400,
            default="no",
        )
        if answer == "no":
            return "refused"
    return (yield from step("pay").call(pay, what, euros).retry(3))


def limit_of(what: str) -> int:
    """Euros that need no approval; a real one looks it up."""
    return 500 if what == "travel" else 100


def pay(what: str, euros: int) -> str:
    """Give a bank this key in a real one: however often it is asked, it pays once."""
    key = current().idempotency_key
    current().log.info("paying", what=what, euros=euros, key=key)
    return "paid"


def service(file: str) -> Starlette:
    """The application; its journal is this file."""
    journal = SqliteJournal(file)
    executor = Executor(journal=journal, workflows=[expense])

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with executor, executor.serve(max_runs=50):  # leaving it suspends what runs
            yield

    async def start(request: Request) -> JSONResponse:
        query, run_id = request.query_params, request.path_params["run_id"]
        euros = int(query["euros"])
        await executor.start(expense, query["what"], euros, run_id=run_id, existing="go_on")
        return await status(request)

    async def status(request: Request) -> JSONResponse:
        return JSONResponse((await executor.get(request.path_params["run_id"])).to_dict())

    async def answer(request: Request) -> JSONResponse:
        query, run_id = request.query_params, request.path_params["run_id"]
        given = await executor.answer(run_id, "approve", query["value"], by=query["who"])
        return JSONResponse({"answer": given})

    async def health(_: Request) -> JSONResponse:
        """Fails, with status 500, if the journal cannot be read."""
        runs = await anyio.to_thread.run_sync(journal.runs)
        return JSONResponse({"waiting": sum(run.status == "suspended" for run in runs)})

    def told(code: int, text: str) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
        async def respond(_: Request, __: Exception) -> JSONResponse:  # it may name other requests
            return JSONResponse({"error": text}, code)

        return respond

    path, form = "/expenses/{run_id}", "Give what and euros, a number; to answer, value and who."
    return Starlette(
        routes=[
            Route(path, start, methods=["POST"]),
            Route(path, status),
            Route(f"{path}/answer", answer, methods=["POST"]),
            Route("/health", health),
        ],
        exception_handlers={
            RunNotFound: told(404, "There is no such expense."),
            GateClosed: told(409, "Somebody has answered already."),
            InputsDiffer: told(409, "Another expense has this id."),
            **dict.fromkeys((HandrailError, ValueError, KeyError), told(400, form)),
        },
        lifespan=lifespan,
    )


app = service(os.environ.get("APPROVALS_DB", "runs.db"))
