"""Messages of runs: claims of names and files, with one waiting line for all runs.

``handrail.workspace.claims.deciding`` decides who gets what, as on one machine. It also sees the
claims of outsiders (agents on the synapse wire, which no run started), and their waits when it
looks for deadlocks. These message types are the hub's own, not of the synapse wire. Each message
has a ``request``: the client's id, which the replies repeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from handrail.coordination.hub.bounded import Fitting
from handrail.coordination.hub.frames import SHORT, Refusal
from handrail.coordination.hub.records import Count, RunClaim, RunClaimRequest, TaskClaim
from handrail.coordination.hub.run_claims import (
    NAMES,
    OUTSIDE,
    localize_for,
    names_of,
    normalize_places,
    outsider,
    outsider_resources,
    paths_of,
    size_of,
)
from handrail.coordination.hub.state import Reaction, Request, State
from handrail.model.patterns import compiled
from handrail.ports import claims as port
from handrail.workspace.claims.deciding import ClaimSnapshot, QueuedRequest, related

T = TypeVar("T")

MOST = 10_000
"""The most claims that one agent may have and wait for, together."""
MOST_SIZE = 16 * 1024 * 1024
MOST_PATTERNS = 5_000
MOST_WILD, MOST_SIGNS = 50, 8
"""The most patterns of a request that may have wildcards, and the most wildcards of a pattern.
Comparing two patterns then takes at most 3 ms.
"""
_SIGN = re.compile(r"[*?]|\[(?!.\])")
_LAST = 1 << 60
"""The number of a request that is not in the waiting line: behind all others."""


# -- messages --------------------------------------------------------------------------------------


def acquire(request: Request) -> str:
    """Grant a claim, or put the request in line; a repeated request gets its current state."""
    claims, name = request.state.run_claims, _request(request)
    known = claims.request(request.sender, name)
    if isinstance(known, RunClaim):
        return _send_granted(request, known)
    if isinstance(known, RunClaimRequest):
        return _send_waits(request.reaction, known, claims.sent_behind.get(known.number, ()))
    if len(claims.entries_of(request.sender)) >= MOST:
        raise Refusal(f"{request.sender} has or waits for {MOST} claims, which is the most.")
    queued = _read_request(request, name)
    scene = _snapshot(request.state, [queued])
    one = scene.line[queued.number]
    behind = scene.in_the_way(one)
    if not behind:
        return _send_granted(request, _grant(request.reaction, queued))
    circle = scene.circle(one)
    if circle:
        raise Refusal("It would wait for itself.", reason="deadlock", circle=circle)
    if request.frame.fields.get("wait") is False:
        raise Refusal("It is not free.", reason="busy", behind=behind)
    request.reaction.put("lined", str(queued.number), queued)
    return _send_waits(request.reaction, queued, behind)


def withdraw(request: Request) -> str:
    """Withdraw a request: leave the line, or release the claim that was granted meanwhile."""
    name = _request(request)
    known = request.state.run_claims.request(request.sender, name)
    if isinstance(known, RunClaim):
        end(request.reaction, known)
    elif known is not None:
        request.reaction.put("lined", str(known.number), None)
    return request.reply("handrail.withdrawn", "It is not asked for any more.", request=name)


def give_back(request: Request) -> str:
    """End a run's claim, whichever client acquired it; does nothing if it has ended."""
    name, claimant = _request(request), _read(request, "claimant", port.Claimant)
    epoch = request.frame.integer("epoch") or 0
    held = request.state.run_claims.held.get(epoch)
    if held is not None and held.claimant == claimant:
        end(request.reaction, held)
    elif _outsider_claim(request.state, epoch, claimant) is not None:
        raise Refusal(f"It is the claim of {claimant.run}, who releases it.")
    return request.reply("handrail.given_back", "It is not held any more.", request=name)


def is_held(request: Request) -> str:
    """Report whether a claim is live."""
    name, claimant = _request(request), _read(request, "claimant", port.Claimant)
    epoch = request.frame.integer("epoch") or 0
    held = request.state.run_claims.held.get(epoch)
    if held is None:
        found = _outsider_claim(request.state, epoch, claimant) is not None
    else:
        found = held.claimant == claimant
    return request.reply("handrail.held", "Held." if found else "Over.", request=name, held=found)


def others_since(request: Request) -> str:
    """Report the claims that others had at any time since an epoch, in pages by ``after``."""
    state, name = request.state, _request(request)
    claimant = _read(request, "claimant", port.Claimant)
    mine = _read(request, "resources", tuple[port.Resource, ...])
    epoch, since = request.frame.integer("epoch") or 0, request.frame.integer("since") or 0
    if since < state.forgotten:
        raise Refusal(
            f"What was held since epoch {since} is not known any more, only since "
            f"{state.forgotten}."
        )
    after = request.frame.integer("after") or -1
    ended = (
        _claim_of(one)
        for one in state.run_claims.ended.values()
        if one.ended is not None and one.ended > since
    )
    found = [
        localize_for(claim, mine, state.settings.roots)
        for claim in sorted([*_live_claims(state), *ended], key=lambda one: one.epoch)
        if claim.epoch > after and claim.epoch != epoch and not related(claim.claimant, claimant)
    ]
    shown = Fitting(state.settings.max_reply).first(found)
    more = shown[-1].epoch if len(shown) < len(found) else None
    return request.reply("handrail.others", "Others.", request=name, claims=shown, more=more)


def claims_request(request: Request) -> str:
    """Report all live claims, by epoch, and all waiting requests with who is in their way."""
    state = request.state
    scene = _snapshot(state)
    fits, roots = Fitting(state.settings.max_reply), state.settings.roots
    held = [
        localize_for(one, (), roots)
        for one in sorted(_live_claims(state), key=lambda one: one.epoch)
    ]
    waiting = [
        port.ClaimWait(
            one.claimant, one.resources, one.since, scene.in_the_way(scene.line[one.number])
        )
        for one in state.run_claims.line.values()
    ]
    return request.reply(
        "handrail.claims",
        "Claims.",
        request=_request(request),
        held=fits.all(held),
        waiting=fits.all(waiting),
        **fits.omitted(),
    )


HANDLERS: dict[str, Callable[[Request], str]] = {
    "handrail.acquire": acquire,
    "handrail.withdraw": withdraw,
    "handrail.give_back": give_back,
    "handrail.is_held": is_held,
    "handrail.others_since": others_since,
    "handrail.claims_request": claims_request,
}


# -- outsiders -------------------------------------------------------------------------------------


def blocking_claim(
    state: State, owner: str, task_id: str, worktree: str, paths: tuple[str, ...]
) -> tuple[str, str, str] | None:
    """The run that an outsider's claim would conflict with, or None.

    Its step, the run, and whether the run has its claim ("held") or waits for it ("waited for").
    """
    if not state.run_claims.concerns(worktree, paths, task_id):
        return None
    claimant = port.Claimant(owner, "", OUTSIDE, "session")
    resources = outsider_resources(task_id, worktree, paths, folds=state.settings.folds_case)
    one = QueuedRequest(_LAST, claimant, resources)
    scene = _snapshot(state, (), [one])
    holders = [claim.claimant for claim in scene.holders(one)]
    if holders:
        return holders[0].name, holders[0].run, "held"
    ahead = [other.claimant for other in scene.ahead(one)]
    return (ahead[0].name, ahead[0].run, "waited for") if ahead else None


def closes_circle(state: State, waiter: str, task_id: str) -> bool:
    """True if this outsider's wait for a task would close a circle."""
    one = _wait(state, _LAST, waiter, task_id)
    return one is not None and bool(_snapshot(state, (), [one]).circle(one))


def ended_outside(reaction: Reaction, claim: TaskClaim) -> None:
    """Serve runs that waited for an outsider's ended claim, and keep the claim for look-backs."""
    state = reaction.state
    if state.run_claims.is_awaited(claim.worktree, claim.paths, claim.task_id):
        state.run_claims.due = True
    if state.run_claims.looks_back(reaction.now):
        known = outsider(claim, state.settings.folds_case)
        over = RunClaim(
            claimant=known.claimant,
            resources=known.resources,
            epoch=claim.epoch,
            since=claim.claimed_at,
            ended=_next(reaction),
        )
        _keep_ended(reaction, over)


# -- after each input ------------------------------------------------------------------------------


def serve(reaction: Reaction) -> None:
    """Grant the waiting requests that have become free, and tell the others who is in the way."""
    state, claims = reaction.state, reaction.state.run_claims
    while claims.due:
        claims.due = False
        if not claims.line:
            return
        scene = _snapshot(state)
        for queued in list(claims.line.values()):
            behind = scene.in_the_way(scene.line[queued.number])
            if not behind:
                held = _grant(reaction, queued)
                _send(reaction, held.agent, _granted_text(reaction, held))
                break
            if behind != claims.sent_behind.get(queued.number):
                _send_waits(reaction, queued, behind)


def expire(reaction: Reaction) -> None:
    """End the runs' claims whose time is over."""
    for held in reaction.state.run_claims.expired(reaction.now):
        end(reaction, held)


def release_absent(reaction: Reaction, agent: str) -> None:
    """End the claims of an agent that did not come back, and its waiting requests."""
    for entry in reaction.state.run_claims.entries_of(agent):
        if isinstance(entry, RunClaimRequest):
            reaction.put("lined", str(entry.number), None)
        elif entry.until is None:
            end(reaction, entry, cut=True)


def end(reaction: Reaction, held: RunClaim, *, cut: bool = False) -> None:
    """End a run's claim. ``cut``: the run vanished, and did not release it."""
    state = reaction.state
    for task_id in names_of(held):
        for agent in state.waits.waiters(task_id):
            reaction.put("wait", agent, None)
    if not cut:
        _forget_cut(reaction, held.claimant)
    _keep_ended(reaction, replace(held, ended=_next(reaction), cut=cut))
    kind = "claim_expired" if cut else "release_granted"
    word = "has ended: its run is gone" if cut else "is released"
    for task_id in names_of(held):
        reaction.broadcast(
            kind,
            f"Claim of '{task_id}' by {held.claimant.run} {word}.",
            task_id=task_id,
            owner=held.claimant.run,
            epoch=held.epoch,
        )


def held_entries(state: State) -> list[dict[str, Any]]:
    """The runs' claims, as entries for outsiders."""
    return [entry for held in state.run_claims.held.values() for entry in _entries(state, held)]


# -- parts -----------------------------------------------------------------------------------------


def _read_request(request: Request, name: str) -> RunClaimRequest:
    frame = request.frame
    ttl_s = frame.number("ttl_seconds")
    resources = _read(request, "resources", tuple[port.Resource, ...])
    if not resources:
        raise Refusal("resources are required.")
    _check_patterns([pattern for resource in resources for pattern in resource.patterns])
    size = request.state.run_claims.size(request.sender) + size_of(resources)
    if size > MOST_SIZE:
        text = f"What {request.sender} has and waits for would be {size} characters"
        raise Refusal(f"{text}; {MOST_SIZE} is the most.")
    return RunClaimRequest(
        number=request.state.run_claims.last_number + 1,
        claimant=_read(request, "claimant", port.Claimant),
        resources=resources,
        since=request.now,
        agent=request.sender,
        request=name,
        ttl_s=ttl_s,
        host=frame.name("host"),
        pid=frame.integer("pid") or 0,
    )


def _check_patterns(patterns: Sequence[str]) -> None:
    """Refuse patterns that would take too long to compare, or that are invalid."""
    signs = [len(_SIGN.findall(pattern)) for pattern in patterns]
    if len(signs) > MOST_PATTERNS or sum(map(bool, signs)) > MOST_WILD:
        text = f"It is of {len(signs)} patterns, {sum(map(bool, signs))} of them with * or ?"
        raise Refusal(f"{text}; {MOST_PATTERNS} and {MOST_WILD} are the most.")
    for pattern, count in zip(patterns, signs, strict=True):
        if count > MOST_SIGNS:
            raise Refusal(f"Pattern '{pattern[:SHORT]}' has more than {MOST_SIGNS} * or ?.")
        try:
            compiled(pattern.removeprefix("!"))
        except (re.error, ValueError, RecursionError) as error:
            raise Refusal(f"Pattern '{pattern[:SHORT]}' is none: {error}.") from None


def _grant(reaction: Reaction, queued: RunClaimRequest) -> RunClaim:
    epoch = _next(reaction)
    held = RunClaim(
        claimant=queued.claimant,
        resources=queued.resources,
        epoch=epoch,
        since=reaction.now,
        until=None if queued.ttl_s is None else reaction.now + queued.ttl_s,
        agent=queued.agent,
        request=queued.request,
        host=queued.host,
        pid=queued.pid,
    )
    if queued.number in reaction.state.run_claims.line:
        reaction.put("lined", str(queued.number), None)
    reaction.put("held", str(epoch), held)
    for entry in _entries(reaction.state, held):
        text = f"Task '{entry['task_id']}' claimed by {entry['owner']}."
        reaction.broadcast("claim_granted", text, **entry)
    return held


def _send_granted(request: Request, held: RunClaim) -> str:
    text = _granted_text(request.reaction, held)
    request.reaction.to(request.session.socket, text)
    return text


def _granted_text(reaction: Reaction, held: RunClaim) -> str:
    return reaction.envelope(
        "handrail.acquired",
        "It is held.",
        held.agent,
        request=held.request,
        epoch=held.epoch,
        since=held.since,
        until=held.until,
    )


def _send_waits(
    reaction: Reaction, queued: RunClaimRequest, behind: Sequence[port.Claimant]
) -> str:
    reaction.state.run_claims.sent_behind[queued.number] = tuple(behind)
    text = reaction.envelope(
        "handrail.waits", "It is not free.", queued.agent, request=queued.request, behind=behind
    )
    _send(reaction, queued.agent, text)
    return text


def _send(reaction: Reaction, agent: str, text: str) -> None:
    socket = reaction.state.roster.holder(agent)
    if socket is not None:
        reaction.to(socket, text)


def _entries(state: State, held: RunClaim) -> list[dict[str, Any]]:
    files = [resource for resource in held.resources if not resource.name]
    trees = {place.tree for place in normalize_places(files, state.settings.roots)}
    entries: list[dict[str, Any]] = []
    for task_id in names_of(held):
        is_name = any(resource.name == task_id for resource in held.resources)
        entries.append(
            {
                "task_id": task_id,
                "owner": held.claimant.run,
                "note": port.text_of(held.resources),
                "claimed_at": held.since,
                "lease_expires_at": held.since + _SHOWN_S if held.until is None else held.until,
                "status": "claimed",
                "data_ref": "",
                "worktree": NAMES if is_name else ",".join(sorted(trees)),
                "paths": () if is_name else paths_of(files) or (),
                "epoch": held.epoch,
                "version": 0,
                "checkpoint": "",
            }
        )
    return entries


_SHOWN_S = 3600.0
"""The lease that outsiders see for a claim that lasts as long as its run."""


def _outsider_claim(state: State, epoch: int, claimant: port.Claimant) -> TaskClaim | None:
    claims = (claim for claim in state.agent_claims.all() if claim.epoch == epoch)
    return next((claim for claim in claims if claim.owner == claimant.run), None)


def _next(reaction: Reaction) -> int:
    """Count the epoch up; the new epoch."""
    epoch = reaction.state.epoch + 1
    reaction.put("count", "epoch", Count(epoch))
    return epoch


def _keep_ended(reaction: Reaction, over: RunClaim) -> None:
    claims = reaction.state.run_claims
    for key in claims.ended.surplus(300):
        forgotten = claims.ended.get(key)
        assert forgotten is not None
        since = max(forgotten.ended or 0, reaction.state.forgotten)
        reaction.put("count", "forgotten", Count(since))
        reaction.put("held", key, None)
    reaction.put("held", str(over.epoch), over)


def _forget_cut(reaction: Reaction, done: port.Claimant) -> None:
    """Clear ``cut`` on a step's ended claims: the step has now released a later one."""
    for claim in list(reaction.state.run_claims.ended.values()):
        if claim.cut and claim.claimant == done:
            reaction.put("held", str(claim.epoch), replace(claim, cut=False))


def _live_claims(state: State) -> list[port.Claim]:
    folds = state.settings.folds_case
    outside = [outsider(claim, folds) for claim in state.agent_claims.all()]
    return [*map(_claim_of, state.run_claims.held.values()), *outside]


def _claim_of(held: RunClaim) -> port.Claim:
    return port.Claim(
        held.claimant, held.resources, held.epoch, held.since, held.until, held.host, held.pid
    )


def _snapshot(
    state: State, more: Iterable[RunClaimRequest] = (), others: Iterable[QueuedRequest] = ()
) -> ClaimSnapshot:
    """All claims, requests and outsiders' waits, their resources as the hub compares them."""
    roots, folds = state.settings.roots, state.settings.folds_case
    held = [outsider(claim, folds) for claim in state.agent_claims.all()]
    runs = map(_claim_of, state.run_claims.held.values())
    held += [replace(run, resources=normalize_places(run.resources, roots)) for run in runs]
    line = [
        QueuedRequest(one.number, one.claimant, normalize_places(one.resources, roots), one.since)
        for one in (*state.run_claims.line.values(), *more)
    ]
    waits = [
        wait
        for at, agent in enumerate(state.waits.agents(), _LAST + 1)
        if (wait := _wait(state, at, agent, state.waits.get(agent) or "")) is not None
    ]
    return ClaimSnapshot(held, [*line, *others, *waits])


def _wait(state: State, number: int, agent: str, task_id: str) -> QueuedRequest | None:
    """An outsider's wait for a task, as a request in the line; None if the task has no claim."""
    claimant = port.Claimant(agent, "", OUTSIDE, "session")
    claim = state.agent_claims.get(task_id)
    if claim is not None:
        resources = outsider(claim, state.settings.folds_case).resources
        return QueuedRequest(number, claimant, resources)
    for held in state.run_claims.held.values():
        if task_id in names_of(held):
            return QueuedRequest(
                number, claimant, normalize_places(held.resources, state.settings.roots)
            )
    return None


def _request(request: Request) -> str:
    name = request.frame.name("request")
    if not name:
        raise Refusal("request is required.")
    return name


def _read(request: Request, name: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(request.frame.fields.get(name), kind)
    except msgspec.ValidationError as error:
        raise Refusal(f"{name}: {error}"[:SHORT]) from None
