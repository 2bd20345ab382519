"""Messages about the board: declare and update tasks, report progress, show the board."""

from __future__ import annotations

from dataclasses import replace

from handrail.coordination.hub.board import ENDED, MOST_SIZE, MOST_TASKS, NOTE_KINDS, STATUSES
from handrail.coordination.hub.bounded import Fitting
from handrail.coordination.hub.claiming import post
from handrail.coordination.hub.frames import SHORT, Refusal
from handrail.coordination.hub.records import Task
from handrail.coordination.hub.state import Request


def ledger_task(request: Request) -> str:
    """Declare a task, or redeclare it; its status stays."""
    frame, board, now = request.frame, request.state.board, request.now
    task_id, title = frame.name("task_id"), frame.name("title", most=10 * SHORT)
    if not task_id:
        raise Refusal("Task ID is required.")
    if not title:
        raise Refusal("Task title is required.", task_id=task_id)
    depends_on = tuple(text for text in frame.texts("depends_on") if text != task_id)
    if board.makes_circle(task_id, depends_on):
        raise Refusal(f"Task '{task_id}' dependencies would form a cycle.", task_id=task_id)
    known = board.get(task_id)
    task = Task(
        task_id=task_id,
        title=title,
        description=frame.text("description"),
        depends_on=depends_on,
        status=known.status if known else "open",
        suggested_owner=frame.name("suggested_owner"),
        created_by=known.created_by if known else request.sender,
        created_at=known.created_at if known else now,
        updated_at=now,
    )
    if not board.has_room(task):
        raise Refusal(f"The board is full: its tasks are longer than {MOST_SIZE} characters.")
    if known is None:
        _make_room(request, task_id)
    request.reaction.put("task", task_id, task)
    again = "re-" if known else ""
    return request.reaction.broadcast(
        "ledger_task_posted", f"Task '{task_id}' {again}declared by {request.sender}.", task=task
    )


def ledger_task_update(request: Request) -> str:
    """Change the status or the suggested owner of a task."""
    frame = request.frame
    task_id = frame.name("task_id")
    known = request.state.board.get(task_id)
    if known is None:
        raise Refusal(f"Task '{task_id}' is not on the board.", task_id=task_id)
    status = frame.name("status") if frame.has("status") else known.status
    if status not in STATUSES:
        raise Refusal(f"Unknown ledger status '{status}'.", task_id=task_id)
    expected = frame.name("expected_status")
    if expected and expected != known.status:
        text = f"Task '{task_id}' is {known.status}, not {expected}."
        raise Refusal(text, task_id=task_id)
    if status != known.status:
        _check_owner(request, known, status)
    has_owner = frame.has("suggested_owner")
    task = replace(
        known,
        status=status,
        suggested_owner=frame.name("suggested_owner") if has_owner else known.suggested_owner,
        updated_at=request.now,
    )
    request.reaction.put("task", task_id, task)
    return request.reaction.broadcast(
        "ledger_task_updated", f"Task '{task_id}' plan updated.", task=task
    )


def ledger_progress(request: Request) -> str:
    """Post a progress note about a task."""
    frame = request.frame
    kind = frame.name("kind") or "note"
    if kind not in NOTE_KINDS:
        raise Refusal(f"Unknown progress kind '{kind}'.")
    return post(request, frame.name("task_id"), kind, frame.text("payload", "text"))


def board_request(request: Request) -> str:
    """Show the board: all tasks, the ready ones, and the newest progress notes."""
    board = request.state.board
    fits = Fitting(request.state.settings.max_reply)
    tasks = board.tasks()
    ready = fits.all(task.task_id for task in tasks if board.is_ready(task))
    shown = fits.all([task for task in tasks if task.status not in ENDED])
    shown += fits.all([task for task in tasks if task.status in ENDED])
    notes = fits.newest(board.notes.newest())
    parts = {"tasks": sorted(shown, key=lambda task: task.task_id), "ready": ready}
    return request.reply(
        "board_snapshot", "Board snapshot", board={**parts, "progress": notes, **fits.omitted()}
    )


def _check_owner(request: Request, known: Task, status: str) -> None:
    """Refuse a status change that the sender may not make.

    Only the task's author, its suggested owner and its claim's owner may cancel it, or change it
    once it has ended. While the task is claimed, only these may mark it done. ``force`` skips this.
    """
    claim = request.state.agent_claims.get(known.task_id)
    holder = claim.owner if claim is not None else ""
    if request.frame.fields.get("force") is True:
        return
    if request.sender in {known.created_by, known.suggested_owner, holder}:
        return
    if status == "cancelled" or known.status in ENDED:
        whose = ", ".join(dict.fromkeys(filter(None, (known.created_by, known.suggested_owner))))
        text = f"Task '{known.task_id}' is {known.status}, and only {whose} may make it {status}."
        raise Refusal(text, task_id=known.task_id)
    if status == "done" and holder:
        text = f"Task '{known.task_id}' is claimed by {holder}, who says when it is done."
        raise Refusal(text, task_id=known.task_id)


def _make_room(request: Request, task_id: str) -> None:
    try:
        oldest = request.state.board.surplus()
    except LookupError:
        text = f"The board is full: {MOST_TASKS} tasks are open or needed by others."
        raise Refusal(text, task_id=task_id) from None
    if oldest is not None:
        request.reaction.put("task", oldest, None)
