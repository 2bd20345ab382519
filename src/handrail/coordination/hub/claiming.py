"""Messages about agents' claims: take, renew, update, hand over, release, wait; and expiry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from handrail.coordination.hub import run_claiming
from handrail.coordination.hub.frames import SHORT, Refusal
from handrail.coordination.hub.records import Checkpoint, Count, Note, TaskClaim, Wait
from handrail.coordination.hub.scopes import normalized
from handrail.coordination.hub.state import Reaction, Request, size_of

LEAST_LEASE_S = 30.0
MOST_LEASE_S = 1e9
MOST_CLAIMS = 10_000
MOST_SIZE = 8 * 1024 * 1024
"""The most characters of all claims of one agent."""

TRANSITIONS: dict[str, frozenset[str]] = {
    "claimed": frozenset({"working", "done", "failed"}),
    "working": frozenset({"input_required", "done", "failed"}),
    "input_required": frozenset({"working", "done", "failed"}),
    "done": frozenset(),
    "failed": frozenset(),
}


def claim(request: Request) -> str:
    """Claim a task, or renew the claim: a new epoch and lease; unnamed fields stay."""
    task_id = _required_id(request)
    state, sender = request.state, request.sender
    known = state.agent_claims.get(task_id)
    owner = _owner(request, task_id)
    if owner not in {None, sender} or state.run_claims.owner(task_id) is not None:
        text = f"Task '{task_id}' is already claimed by {owner}."
        raise Refusal(text, holder=owner, blocked_by=task_id)
    worktree, paths = _scope(request, known)
    if known is None:
        _check_board(request, task_id)
        _check_room(request)
    blocking = state.agent_claims.overlap(worktree, paths, sender)
    if blocking is not None:
        raise _conflict(task_id, blocking.task_id, blocking.owner)
    run = run_claiming.blocking_claim(state, sender, task_id, worktree, paths)
    if run is not None:
        raise _conflict(task_id, *run)
    claimed = _build_claim(request, task_id, known, worktree, paths)
    _check_size(request, claimed)
    if known is not None and (known.worktree, known.paths) != (worktree, paths):
        run_claiming.ended_outside(request.reaction, known)
    _record_claim(request.reaction, claimed)
    if state.checkpoints.get(task_id) is not None:
        request.reaction.put("checkpoint", task_id, None)
    _stop_waiting(request.reaction, sender)
    return request.reaction.broadcast(
        "claim_granted",
        f"Task '{task_id}' claimed by {sender}.",
        **claim_fields(claimed),
    )


def release(request: Request) -> str:
    """Release a task."""
    task_id = _required_id(request)
    held = _owned(request, task_id)
    _check_epoch(request, held)
    drop(request.reaction, held)
    return request.reaction.broadcast(
        "release_granted",
        f"Task '{task_id}' released by {request.sender}.",
        task_id=task_id,
        owner=request.sender,
    )


def task_update(request: Request) -> str:
    """Update the status, note or data reference of a claimed task."""
    frame = request.frame
    task_id = frame.name("task_id", "id")
    held = request.state.agent_claims.get(task_id)
    if held is None:
        raise Refusal(f"Task '{task_id}' not found.", task_id=task_id)
    if held.owner != request.sender:
        text = f"Task '{task_id}' owned by {held.owner}, not {request.sender}."
        raise Refusal(text, task_id=task_id)
    _check_epoch(request, held)
    expected = frame.integer("expected_version")
    if expected is not None and expected != held.version:
        text = f"Task '{task_id}' version conflict (current {held.version})."
        raise Refusal(text, task_id=task_id)
    status = frame.name("status") or held.status
    if status != held.status and status not in TRANSITIONS.get(held.status, frozenset()):
        text = f"Task '{task_id}' cannot transition {held.status} -> {status}."
        raise Refusal(text, task_id=task_id)
    changed = replace(
        held,
        status=status,
        note=frame.text("note") if frame.has("note") else held.note,
        data_ref=frame.text("data_ref") if frame.has("data_ref") else held.data_ref,
        version=held.version + 1,
    )
    _check_size(request, changed)
    request.reaction.put("claim", task_id, changed)
    return request.reaction.broadcast(
        "task_updated",
        f"Task '{task_id}' updated by {request.sender}.",
        task_id=task_id,
        owner=request.sender,
        status=changed.status,
        data_ref=changed.data_ref,
        version=changed.version,
    )


def checkpoint(request: Request) -> str:
    """Save how far the work is, for the task's next owner."""
    task_id = request.frame.name("task_id")
    held = request.state.agent_claims.get(task_id)
    if held is None:
        raise Refusal(f"Task '{task_id}' not found.")
    if held.owner != request.sender:
        raise Refusal(f"Task '{task_id}' owned by {held.owner}, not {request.sender}.")
    _check_epoch(request, held)
    text = request.frame.text("checkpoint", "payload")
    changed = replace(held, checkpoint=text, version=held.version + 1)
    _check_size(request, changed)
    request.reaction.put("claim", task_id, changed)
    return request.reply(
        "checkpoint_saved",
        f"Checkpoint saved for '{task_id}' by {request.sender}.",
        task_id=task_id,
        version=changed.version,
    )


def handoff(request: Request) -> str:
    """Hand a task over to another agent, which must be online, with its checkpoint."""
    task_id, frame, state = _required_id(request, payload=False), request.frame, request.state
    to_agent = frame.name("to_agent", "target")
    if not state.roster.has(to_agent):
        raise Refusal(f"Handoff target '{to_agent}' is not online.")
    held = _owned(request, task_id)
    if to_agent == request.sender:
        raise Refusal(f"Task '{task_id}' is already owned by {to_agent}.")
    _check_epoch(request, held)
    blocking = state.agent_claims.overlap(held.worktree, held.paths, to_agent, ignoring=held)
    if blocking is not None:
        raise _conflict(task_id, blocking.task_id, blocking.owner)
    changed = replace(
        held,
        owner=to_agent,
        note=frame.text("note") or held.note,
        lease_expires_at=request.now + state.settings.lease_s,
        epoch=state.epoch + 1,
        version=0,
    )
    said = f"handed off to {to_agent}: {changed.note}" if changed.note else ""
    post(request, task_id, "note", said or f"handed off to {to_agent}")
    _record_claim(request.reaction, changed)
    _stop_waiting(request.reaction, to_agent)
    return request.reaction.broadcast(
        "handoff_granted",
        f"Task '{task_id}' handed from {request.sender} to {to_agent}.",
        **claim_fields(changed),
        previous_owner=request.sender,
    )


def wait_request(request: Request) -> str:
    """Note that the agent waits for a task, unless that would close a circle of waits."""
    task_id = request.frame.name("task_id", "payload")
    state, sender = request.state, request.sender
    holder = _owner(request, task_id)
    if holder is None:
        raise Refusal(f"Task '{task_id}' is not claimed; nothing to wait for.")
    if holder == sender and state.agent_claims.get(task_id) is not None:
        raise Refusal(f"You already hold '{task_id}'.")
    if _makes_circle(request, task_id):
        text = f"Waiting for '{task_id}' held by {holder} would deadlock."
        raise Refusal(text, holder=holder)
    request.reaction.put("wait", sender, Wait(agent=sender, task_id=task_id))
    text = f"Waiting for '{task_id}' held by {holder}."
    return request.reply("wait_granted", text, task_id=task_id, holder=holder)


def post(request: Request, task_id: str, kind: str, text: str) -> str:
    """Add a progress note to the board."""
    board = request.state.board
    note = Note(task_id=task_id, author=request.sender, kind=kind, text=text, posted_at=request.now)
    key = str(board.last_note + 1)
    request.reaction.put_newest("note", key, note, board.notes.surplus(size_of(note)))
    return request.reaction.broadcast(
        "ledger_progress_posted", f"Progress from {request.sender}", note=note
    )


def claim_fields(claim: TaskClaim) -> dict[str, Any]:
    """The fields of a claim that all agents see when it is granted or handed over."""
    return {
        "task_id": claim.task_id,
        "owner": claim.owner,
        "note": claim.note,
        "lease_expires_at": claim.lease_expires_at,
        "status": claim.status,
        "worktree": claim.worktree,
        "paths": claim.paths,
        "epoch": claim.epoch,
        "version": claim.version,
        "checkpoint": claim.checkpoint,
    }


# -- ends ------------------------------------------------------------------------------------------


def expire(reaction: Reaction) -> None:
    """End the expired claims, and tell all agents."""
    state, now = reaction.state, reaction.now
    for claim in state.agent_claims.expired(now):
        drop(reaction, claim)
        if claim.checkpoint:
            kept = Checkpoint(task_id=claim.task_id, text=claim.checkpoint)
            surplus = state.checkpoints.surplus(len(kept.text))
            reaction.put_newest("checkpoint", claim.task_id, kept, surplus)
        is_lease = claim.lease_expires_at <= now
        reason = "its lease is over" if is_lease else "its owner is gone"
        reaction.broadcast(
            "claim_expired",
            f"Claim of task '{claim.task_id}' by {claim.owner} has ended: {reason}.",
            task_id=claim.task_id,
            owner=claim.owner,
            epoch=claim.epoch,
            reason="lease" if is_lease else "owner_gone",
        )


def drop(reaction: Reaction, claim: TaskClaim) -> None:
    """End a claim, and the waits for it."""
    reaction.put("claim", claim.task_id, None)
    run_claiming.ended_outside(reaction, claim)
    for agent in reaction.state.waits.waiters(claim.task_id):
        reaction.put("wait", agent, None)


# -- parts -----------------------------------------------------------------------------------------


def _build_claim(
    request: Request, task_id: str, known: TaskClaim | None, worktree: str, paths: tuple[str, ...]
) -> TaskClaim:
    state, now = request.state, request.now
    epoch, until = state.epoch + 1, now + _lease_s(request)
    note = request.frame.text("note")
    if known is not None:
        return replace(
            known,
            note=note or known.note,
            lease_expires_at=until,
            worktree=worktree,
            paths=paths,
            epoch=epoch,
        )
    saved = state.checkpoints.get(task_id)
    return TaskClaim(
        task_id=task_id,
        owner=request.sender,
        note=note,
        claimed_at=now,
        lease_expires_at=until,
        status="claimed",
        data_ref="",
        worktree=worktree,
        paths=paths,
        epoch=epoch,
        version=0,
        checkpoint=saved.text if saved else "",
        first_epoch=epoch,
    )


def _record_claim(reaction: Reaction, claim: TaskClaim) -> None:
    reaction.put("claim", claim.task_id, claim)
    reaction.put("count", "epoch", Count(claim.epoch))


def _stop_waiting(reaction: Reaction, agent: str) -> None:
    if reaction.state.waits.get(agent) is not None:
        reaction.put("wait", agent, None)


def _scope(request: Request, known: TaskClaim | None) -> tuple[str, tuple[str, ...]]:
    """The worktree and paths of a claim; a renewal keeps those that it does not name."""
    frame = request.frame
    worktree = frame.name("worktree", most=4 * SHORT)
    if known is not None and not frame.has("worktree"):
        worktree = known.worktree
    if known is not None and not frame.has("paths"):
        return worktree, known.paths
    settings = request.state.settings
    named = (worktree,) if worktree.startswith("/") else ()
    paths = normalized(frame.texts("paths"), (*named, *settings.roots), settings.real)
    return settings.real(worktree) if named else worktree, paths


def _lease_s(request: Request) -> float:
    lease_s = request.frame.number("ttl_seconds")
    if lease_s is None:
        return request.state.settings.lease_s
    if lease_s > MOST_LEASE_S:
        raise Refusal(f"ttl_seconds must be at most {MOST_LEASE_S:.0f}, not {lease_s:g}.")
    return max(lease_s, LEAST_LEASE_S)


def _required_id(request: Request, *, payload: bool = True) -> str:
    names = ("task_id", "payload") if payload else ("task_id",)
    task_id = request.frame.name(*names)
    if not task_id:
        raise Refusal("Task ID is required.")
    return task_id


def _owned(request: Request, task_id: str) -> TaskClaim:
    held = request.state.agent_claims.get(task_id)
    owner = _owner(request, task_id)
    if owner is None:
        raise Refusal(f"Task '{task_id}' is not currently claimed.")
    if held is None or owner != request.sender:
        raise Refusal(f"Task '{task_id}' is owned by {owner}, not {request.sender}.")
    return held


def _owner(request: Request, task_id: str) -> str | None:
    """The owner of a task: an agent or a run."""
    held = request.state.agent_claims.get(task_id)
    return request.state.run_claims.owner(task_id) if held is None else held.owner


def _makes_circle(request: Request, task_id: str) -> bool:
    state, sender = request.state, request.sender
    if state.waits.makes_circle(sender, task_id, lambda one: _owner(request, one)):
        return True
    return bool(state.run_claims.held) and run_claiming.closes_circle(state, sender, task_id)


def _check_epoch(request: Request, held: TaskClaim) -> None:
    epoch = request.frame.integer("epoch")
    if epoch is not None and epoch != held.epoch:
        text = f"Task '{held.task_id}' epoch is stale (current {held.epoch})."
        raise Refusal(text, task_id=held.task_id)


def _check_board(request: Request, task_id: str) -> None:
    task = request.state.board.get(task_id)
    if task is None or request.frame.fields.get("force") is True:
        return
    unmet = request.state.board.unmet(task)
    if unmet:
        more = f", and {len(unmet) - 3} more" if len(unmet) > 3 else ""
        raise Refusal(f"Task '{task_id}' is not ready: {', '.join(unmet[:3])}{more}.")


def _check_room(request: Request) -> None:
    if request.state.agent_claims.count(request.sender) >= MOST_CLAIMS:
        raise Refusal(f"{request.sender} holds {MOST_CLAIMS} claims, which is the most.")


def _check_size(request: Request, claim: TaskClaim) -> None:
    """Limit the total size of one agent's claims."""
    texts = (claim.note, claim.data_ref, claim.checkpoint, *claim.paths)
    size = request.state.agent_claims.size(request.sender) + sum(map(len, texts))
    if size > MOST_SIZE:
        raise Refusal(f"All that {request.sender} holds would be longer than {MOST_SIZE} bytes.")


def _conflict(task_id: str, other: str, owner: str, word: str = "held") -> Refusal:
    text = f"Task '{task_id}' file scope conflicts with '{other}' {word} by {owner}."
    return Refusal(text, holder=owner, blocked_by=other)
