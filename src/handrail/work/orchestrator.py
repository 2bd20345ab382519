"""Runs a workflow protocol as ``work``, with a journal in its folder."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from handrail.decorator import Workflow, workflow
from handrail.engine.outside import run_outside
from handrail.engine.stream import Run
from handrail.errors import WrongUse
from handrail.executor import Executor
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model.events import Event, WorkflowStarted
from handrail.model.policy import count_of
from handrail.model.work import Found, Task, Work
from handrail.ports.journal import Journal
from handrail.record.outputs import derive
from handrail.record.reading import history_of
from handrail.record.run_record import Recorded
from handrail.record.work import last_tasks
from handrail.steps.step import step
from handrail.steps.verbs import Step
from handrail.system.own_files import FOLDER
from handrail.system.run import kill_marked
from handrail.work.board import RESULT, WORK, Board, data_of
from handrail.work.protocol import METHODS, Status, TaskResult, WorkflowProtocol

REPORT = "report.md"

_log = logging.getLogger("handrail.work")


class Orchestrator:
    """Runs a protocol's tasks, and those that follow from them, ``max_concurrency`` at a time.

    ``protocol``, or ``workflow``, is any object with the methods of ``WorkflowProtocol``. Every
    task's end is recorded in ``workdir`` (default: the protocol's ``workdir``, else the current
    folder), before anything follows from it: ``run`` continues where an earlier one was killed,
    interrupted or failed, and repeats only the tasks that were at work.

    Raises:
        WrongUse: the protocol lacks a method. DefinitionError: ``max_concurrency`` is less than 1.
    """

    def __init__(
        self,
        protocol: WorkflowProtocol | None = None,
        workdir: str | os.PathLike[str] | None = None,
        *,
        workflow: WorkflowProtocol | None = None,
        max_concurrency: int,
    ) -> None:
        if (protocol is None) == (workflow is None):
            raise WrongUse("Orchestrator takes one protocol: Orchestrator(protocol, workdir, ...)")
        given: Any = workflow if protocol is None else protocol
        lacking = [one for one in METHODS if not callable(getattr(given, one, None))]
        if lacking:
            raise WrongUse(f"{given!r} is no workflow protocol: it has no {', '.join(lacking)}")
        self._protocol = given
        self._workdir = Path(getattr(given, "workdir", ".") if workdir is None else workdir)
        self._window = count_of(max_concurrency, "Orchestrator(max_concurrency=)")

    async def run(self, initial_specs: Sequence[Any] | None = None) -> None:
        """Do all tasks, and write ``report.md``. ``initial_specs`` stands in for ``load()``.

        An exception from a method of the protocol ends the work, and is raised here. SIGINT and
        SIGTERM end it, too: tasks at work are stopped.

        Raises:
            SystemExit: by a signal; its code is 128 plus the signal's number. RunLocked: another
                process runs this. WorkflowFailed: a person stopped or cancelled the run.
        """
        loaded = list(self._protocol.load() if initial_specs is None else initial_specs)
        journal = SqliteJournal(self._workdir / FOLDER / "runs.db")
        try:
            await _Drive(self._protocol, self._window, journal, loaded).run()
        finally:
            journal.close()
        self._report()

    def run_sync(self, initial_specs: Sequence[Any] | None = None) -> None:
        """``run`` for callers without an event loop.

        Raises:
            InsideEventLoop: one runs in this thread. Otherwise, whatever ``run`` raises.
        """
        run_outside("run_sync()", "await orchestrator.run()", self.run, initial_specs)

    def _report(self) -> None:
        try:
            text = self._protocol.summarize(self._workdir)
            made = self._workdir / f".{REPORT}.{os.getpid()}"
            made.write_text(text, "utf-8")
            made.replace(self._workdir / REPORT)
        except Exception:  # noqa: BLE001  # the work is done, and recorded
            _log.warning("all tasks are done, but no %s: summarize() failed", REPORT, exc_info=True)


class _Drive:
    """One call of ``run``. Mutable."""

    def __init__(
        self, protocol: WorkflowProtocol, window: int, journal: Journal, loaded: Sequence[Any]
    ) -> None:
        self._protocol = protocol
        self._window = window
        self._journal = journal
        self._board = Board(self._running)
        self._results: dict[str, Any] = {}
        """The results of tasks whose end is not recorded yet, by task id."""
        self._error: Exception | None = None
        """The first exception that the protocol raised."""
        self._signal: signal.Signals | None = None
        self._stream = self._begin(loaded)

    async def run(self) -> None:
        """Do the tasks.

        Raises:
            See ``Orchestrator.run``.
        """
        stream, refused = self._stream, list[Exception]()
        try:
            async with self._signals():
                try:
                    async with stream:
                        async for _ in stream:
                            pass
                except Exception as error:  # noqa: BLE001  # raised where no task group wraps it
                    refused.append(error)
        except BaseException:  # cancelled
            self._checkpoint(*self._board.lists(), "interrupted")
            raise
        if refused:  # no drive: another process runs it, or nothing of it can be run
            raise refused[0]
        done = stream.result.success
        queued, running = self._board.lists()
        self._checkpoint(queued, running, "stopped" if done else "interrupted")
        if self._error is not None:
            raise self._error
        if self._signal is not None and not done:
            raise SystemExit(128 + self._signal)
        stream.result.unwrap()

    # -- where to begin -------------------------------------------------------------------------

    def _begin(self, loaded: Sequence[Any]) -> Run[Any]:
        board = self._board
        board.make = getattr(loaded[0], "from_dict", board.make) if loaded else board.make
        runs = [run for run in self._journal.runs() if run.workflow_name == WORK]
        last = max(runs, key=lambda one: one.started_at, default=None)
        left = None if last is None or last.status == "succeeded" else last.run_id
        recorded = () if left is None else self._continue_from(left)
        tasks = [*recorded, *board.begin_with(loaded)]
        flow = _flow_of(tasks, self._window, self._make, self._take)
        executor = Executor(journal=self._journal, workflows=[flow], sinks=[board])
        if left is not None:
            return executor.stream_resume(left, flow)
        new = executor.options(run_id=f"{WORK}-{len(runs) + 1}")
        return new.stream(flow, reference_to(self._protocol))

    def _continue_from(self, run_id: str) -> Sequence[Task]:
        """Continue from a run's record; returns the tasks that the work began with."""
        recorded = Recorded(history_of(self._journal, run_id))
        if recorded.get(WORK) is None:
            return ()
        derive(recorded, WORK, run_id)
        self._board.continue_from(last_tasks(recorded, WORK))
        return recorded.tasks.get(WORK, ())

    # -- a task ---------------------------------------------------------------------------------

    async def _make(self, task: Task) -> dict[str, Any]:
        """Run the task's coroutine; its result, as data."""
        result = await self._asked(self._protocol.make_coro, self._board.spec_of(task))
        self._results[task.id] = result
        children = getattr(result, "children", None) or ()
        return {
            "children": [
                {**data_of(child), "priority": float(getattr(child, "priority", 0.0))}
                for child in children
            ],
            "is_whole": _is_whole(result),
        }

    async def _take(self, task: Task, recorded: dict[str, Any]) -> Found[None]:
        """Have the protocol take the result; returns the tasks that follow."""
        spec = self._board.spec_of(task)
        if task.id in self._results:
            result = self._results[task.id]
        elif recorded["is_whole"]:
            result = TaskResult([self._board.make(one) for one in recorded["children"]])
        else:  # the process died, and the record has only a part of the result
            result = await self._asked(self._protocol.make_coro, spec)
        following = await self._asked(self._protocol.on_result, spec, result)
        self._results.pop(task.id, None)
        return Found(None, [self._board.task_of(one) for one in following or ()])

    async def _asked(self, method: Callable[..., Any], *given: Any) -> Any:
        """Call a method of the protocol; its result, awaited."""
        try:
            answer = method(*given)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            self._error = self._error or error
            raise

    # -- checkpoints and signals ----------------------------------------------------------------

    def _running(self, queued: list[Any], running: list[Any]) -> None:
        self._checkpoint(queued, running, "running")

    def _checkpoint(self, queued: list[Any], running: list[Any], status: Status) -> None:
        try:
            self._protocol.checkpoint(queued, running, status)
        except Exception as error:  # noqa: BLE001  # run() raises it
            if self._error is None:
                self._error = error
                self._stream.interrupt(f"checkpoint() raised {error!r}")

    @asynccontextmanager
    async def _signals(self) -> AsyncGenerator[None]:
        """In the block, a signal interrupts the run, and a second one ends the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as receiver:

            async def listen() -> None:
                async for number in receiver:
                    if self._signal is not None:
                        kill_marked(self._stream.mark)
                        os._exit(128 + number)
                    self._signal = signal.Signals(number)
                    self._stream.interrupt(self._signal.name)

            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()


def _flow_of(
    tasks: Sequence[Task], window: int | None, make: Callable[..., Any], take: Callable[..., Any]
) -> Workflow[[str], Work[None]]:
    """The workflow of a drive. Each task is two steps, so that its result is not lost if the
    process ends before the protocol has taken it.
    """

    def body(task: Task) -> Generator[Step[Any], Any, Found[None]]:
        result = yield from step("run").call(make, task)
        found: Found[None] = yield from step(RESULT).call(take, task, result)
        return found

    @workflow(name=WORK, description="The tasks of a workflow protocol")
    def flow(protocol: str) -> Generator[Step[Any], Any, Work[None]]:
        del protocol  # recorded, so that a summary can be requested later
        return (
            yield from step(WORK).work(tasks, body, max_concurrency=window, on_error="fail_fast")
        )

    return flow


def recorded_flow(history: Sequence[Event]) -> Workflow[[str], Work[None]] | None:
    """The workflow of an ``Orchestrator``'s run, by its record; None for any other run. It is only
    for inspection, and cannot be driven.
    """
    first = history[0]
    if not isinstance(first, WorkflowStarted) or first.workflow_name != WORK:
        return None
    if set(first.inputs) != {"protocol"}:
        return None
    tasks = Recorded(history).tasks.get(WORK, ())
    return _flow_of(tasks, None, _not_driven, _not_driven)


def _not_driven(*_given: Any) -> None:
    raise WrongUse("only an Orchestrator, with its protocol, can drive this run")


def _is_whole(result: Any) -> bool:
    """True if a result has nothing but its children, so that it can be rebuilt from them."""
    if type(result) is TaskResult:
        return True
    return set(getattr(result, "__dict__", {"": None})) == {"children"}


def reference_to(protocol: object) -> str:
    """``module:name`` of a protocol's class; ``file.py:name`` if its file is the main program."""
    cls: Any = type(protocol)
    module = cls.__module__
    if module == "__main__":
        file = getattr(sys.modules[module], "__file__", None)
        module = str(Path(file).resolve()) if file else module
    return f"{module}:{cls.__qualname__}"
