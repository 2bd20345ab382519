"""What follows a failed launch of an agent: the next rung, a person, or giving up.

The decision depends on how the launch failed and on the recorded ladder steps of the same attempt,
so a resumed run continues where it was:

    the session is gone       retry in a new one
    transient, rate_limit     retry with backoff, or at the time that the backend named; after
                              hours, a person (the next backend of a chain takes over before that)
    crashed                   retry with backoff, in the session
    interrupted, timeout      retry, in the session
    usage_cap                 wait until it ends, with one early probe; if too long, a person
                              (with ``cap="fallback"`` the next of the chain, while there is one)
    context_overflow          compact the session, else a new one with a summary
    invalid_output            re-ask, at last reframed in a new session
    spending_cap, auth        a person must act: the run suspends (with ``auth="probe"`` it probes
                              the login first, for as long as for the end of a cap)
    all others, and rungs     the next backend or model of the chain, then giving up
    that are used up
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from handrail.core.retry import delay_s
from handrail.model.dataclass import dataclass
from handrail.model.events import LadderStep
from handrail.model.launch import Fault, Launch, Rung
from handrail.shortening import shortened

ANSWER_CHARS = 5_000
"""How many characters of an agent's last text are kept for the next launch."""


@dataclass(frozen=True, slots=True)
class Next:
    """Make this launch at ``due`` (unix seconds), or at once if that has passed."""

    launch: Launch
    due: float
    margin_s: float = 0.0
    """How much of the wait follows the end of a usage cap, as its backend told it."""


@dataclass(frozen=True, slots=True)
class Park:
    """Only a person can help; ``advice`` says how. ``launch`` is made after that."""

    advice: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing is left to try: the attempt fails."""


LadderDecision: TypeAlias = Next | Park | GiveUp
_GIVE_UP = GiveUp()
_RETRIED = {
    "crashed": "crash_retries",
    "interrupted": "crash_retries",
    "timeout": "timeout_retries",
}
_WORDED: frozenset[Rung] = frozenset({"reask", "summarise", "reframe"})
_THE_SAME_AGAIN: frozenset[Rung] = frozenset({"retry", "wait"})
IN_A_NEW_SESSION: frozenset[Rung] = frozenset({"summarise", "reframe", "fallback"})
_PAUSED = frozenset({"transient", "rate_limit"})
_GONE = frozenset({"bad_request", "config", "crashed"})
"""Kinds of failure by which a launch in a session may show that the session is gone."""
_CAPPED = frozenset({"usage_cap"})
_LOGGED_OUT = frozenset({"auth"})
RETRIES_BEFORE_FALLBACK = 6
"""How many retries precede the next backend of ``Agent(fallback=)``, by default."""
_LONG_LAUNCH_S = 900.0
_FIRST_PROBE_S = 60.0
_FOR_A_PERSON = frozenset({"spending_cap", "auth"})


def next_launch(fault: Fault, past: Sequence[LadderStep], now: float, seed: str) -> LadderDecision:
    """What to do after a failed launch; ``past`` are the ladder steps of its attempt so far.

    ``seed`` names run and path: the same seed gives the same jitter.
    """
    here = _on_this_route(past)
    if fault.kind in _FOR_A_PERSON:
        probed = _probe_login(fault, here, now) if fault.kind == "auth" else None
        return probed or Park(_advice_text(fault), _in_same_session(fault, "retry"))
    if len(past) + 1 >= fault.ladder.max_launches:
        return _GIVE_UP
    chosen: LadderDecision | None = None
    if _session_is_gone(fault):
        return Next(_in_new_session(fault, "retry"), now)
    if fault.kind in _PAUSED:
        chosen = _wait_for_outage(fault, here, now, seed)
    elif fault.kind in _RETRIED:
        chosen = _retry(fault, here, now, seed)
    elif fault.kind == "usage_cap":
        leaves = fault.ladder.cap == "fallback" and _has_fallback(fault)
        chosen = None if leaves else _wait_for_cap(fault, here, now)
    elif fault.kind == "context_overflow":
        chosen = _shrink_context(fault, here, now)
    elif fault.kind == "invalid_output":
        chosen = _reask(fault, now)
    return chosen or _fall_back(fault, now)


def _session_is_gone(fault: Fault) -> bool:
    """True if a launch failed in a way that shows that the session it was to resume is gone."""
    if fault.launch.session is None or fault.session is not None:
        return False
    return fault.kind in _GONE


def _on_this_route(past: Sequence[LadderStep]) -> list[LadderStep]:
    """The ladder steps since the last change of backend or model."""
    changes = [place for place, step in enumerate(past) if step.next.rung == "fallback"]
    return list(past[changes[-1] + 1 :] if changes else past)


def _retry(fault: Fault, here: Sequence[LadderStep], now: float, seed: str) -> Next | None:
    allowance = _RETRIED[fault.kind]
    used = sum(1 for step in here if _RETRIED.get(step.kind) == allowance)
    if used >= getattr(fault.ladder, allowance):
        return None
    pause_s = 0.0
    if fault.kind == "crashed":  # the cause of the crash may need a moment to pass
        pause_s = delay_s(fault.ladder.backoff, used + 1, f"{seed}/{fault.launch.number}")
    return Next(_in_same_session(fault, "retry"), now + pause_s)


def _wait_for_outage(
    fault: Fault, here: Sequence[LadderStep], now: float, seed: str
) -> LadderDecision | None:
    """The next retry, or a person after hours of one outage.

    None if retries are over, or if the time that the backend named is too far off.
    """
    ladder = fault.ladder
    outage = _last_of(here, now, _PAUSED, max(ladder.backoff.max_s, _LONG_LAUNCH_S))
    most = ladder.transient_retries
    if most is None and _has_fallback(fault):
        most = RETRIES_BEFORE_FALLBACK
    used = len(outage) if ladder.transient_retries is None else _count(here, _PAUSED)
    if most is not None and used >= most:
        return None
    due = now + delay_s(ladder.backoff, used + 1, f"{seed}/{fault.launch.number}")
    if fault.retry_at is not None:
        due = max(due, fault.retry_at)
        if due - now > ladder.cap_max_wait_s:
            return None
    elif due - (outage[0].at if outage else now) > ladder.transient_max_wait_s:
        return Park(_outage_text(fault), _in_same_session(fault, "retry"))
    return Next(_in_same_session(fault, "retry"), due)


def _probe_login(fault: Fault, here: Sequence[LadderStep], now: float) -> Next | None:
    """The next probe of the login, as often as for the end of a cap; None if a person must act."""
    ladder = fault.ladder
    waits = _last_of(here, now, _LOGGED_OUT, ladder.cap_wait_s)
    due = now + (ladder.cap_wait_s if waits else min(_FIRST_PROBE_S, ladder.cap_wait_s))
    if ladder.auth == "suspend" or due - (waits[0].at if waits else now) > ladder.cap_max_wait_s:
        return None
    if len(here) + 1 >= ladder.max_launches:
        return None
    return Next(_in_same_session(fault, "wait"), due)


def _count(here: Sequence[LadderStep], kinds: frozenset[str]) -> int:
    return sum(1 for step in here if step.kind in kinds)


def _wait_for_cap(fault: Fault, here: Sequence[LadderStep], now: float) -> LadderDecision:
    """Wait for the end of the cap; ``since`` is when a launch first met it."""
    ladder = fault.ladder
    waits = _last_of(here, now, _CAPPED, ladder.cap_wait_s)
    since = waits[0].at if waits else now
    if fault.retry_at is not None and fault.retry_at > now:
        due = fault.retry_at + ladder.cap_margin_s
        if due - now > ladder.cap_max_wait_s:
            return Park(_cap_text(fault), _in_same_session(fault, "wait"))
        if not waits and ladder.cap_probe_s is not None and due > now + ladder.cap_probe_s:
            return Next(_in_same_session(fault, "wait"), now + ladder.cap_probe_s)
        return Next(_in_same_session(fault, "wait"), due, ladder.cap_margin_s)
    if now - since + ladder.cap_wait_s > ladder.cap_max_wait_s:
        return Park(_cap_text(fault), _in_same_session(fault, "wait"))
    return Next(_in_same_session(fault, "wait"), now + ladder.cap_wait_s)


def _last_of(
    here: Sequence[LadderStep], now: float, kinds: frozenset[str], long_s: float
) -> Sequence[LadderStep]:
    """The latest ladder steps, which all waited for one and the same cap, outage or login.

    A launch that ran for more than ``long_s`` before it failed met a new one. A launch after a
    person acted met a new outage, or a new loss of the login, but not a new cap.
    """
    count, failed_at = 0, now
    for step in reversed(here):
        was_gone = step.kind in _GONE and step.session is None and step.next.session is None
        is_other = step.kind not in kinds and not was_gone
        over = is_other or failed_at - max(step.at, step.due) > long_s
        if over or (step.parked and kinds is not _CAPPED):
            break
        count, failed_at = count + 1, step.at
    last = here[len(here) - count :]
    first = next((place for place, step in enumerate(last) if step.kind in kinds), len(last))
    return last[first:]


def _shrink_context(fault: Fault, here: Sequence[LadderStep], now: float) -> Next | None:
    used = sum(1 for step in here if step.kind == "context_overflow")
    if used >= fault.ladder.overflow_retries:
        return None
    compacted = any(step.next.rung == "compact" for step in here)
    if fault.can_compact and fault.session is not None and not compacted:
        return Next(_in_same_session(fault, "compact"), now)
    return Next(_in_new_session(fault, "summarise"), now)


def _reask(fault: Fault, now: float) -> Next | None:
    done = fault.launch.reasks
    if done >= fault.max_reasks:
        return None
    last_of_several = fault.max_reasks > 1 and done + 1 == fault.max_reasks
    if last_of_several:
        return Next(_in_new_session(fault, "reframe", reasks=done + 1), now)
    return Next(_in_same_session(fault, "reask", reasks=done + 1), now)


def _fall_back(fault: Fault, now: float) -> LadderDecision:
    if not _has_fallback(fault):
        return _GIVE_UP
    return Next(_in_new_session(fault, "fallback", route=fault.launch.route + 1), now)


def _has_fallback(fault: Fault) -> bool:
    return fault.launch.route + 1 < fault.routes


def _in_same_session(fault: Fault, rung: Rung, *, reasks: int | None = None) -> Launch:
    """The next launch, in the session of the failed one if its backend can resume it."""
    session = fault.session if fault.can_resume else None
    return _launch(fault, rung, session=session, reasks=reasks)


def _in_new_session(
    fault: Fault, rung: Rung, *, reasks: int | None = None, route: int | None = None
) -> Launch:
    return _launch(fault, rung, session=None, reasks=reasks, route=route)


def _launch(
    fault: Fault, rung: Rung, *, session: str | None, reasks: int | None, route: int | None = None
) -> Launch:
    last = fault.launch
    form = _undelivered_rung(fault) if rung in _THE_SAME_AGAIN else None
    answer = shortened(fault.text, ANSWER_CHARS, keep="tail", mark="")
    return Launch(
        last.number + 1,
        last.turn + 1,
        rung,
        session,
        last.route if route is None else route,
        fault.reason if form is None else last.reason,
        (answer or last.answer) if form is None else last.answer,
        last.reasks if reasks is None else reasks,
        fault.spent,
        fault.session_usage if session is not None else None,
        form,
        last.fresh or rung in IN_A_NEW_SESSION,
        fault.backend if session is not None else "",
        last.guidance if form is not None else (),
        last.said if form is not None else (*last.said, *last.guidance),
    )


def _undelivered_rung(fault: Fault) -> Rung | None:
    """The rung whose prompt the next launch repeats, because it was never delivered; else None."""
    last = fault.launch
    form = last.form or last.rung
    return form if form in _WORDED and fault.session == last.session else None


def _what_failed(fault: Fault) -> str:
    """Which backend failed, and why, as a sentence."""
    of = f"{fault.backend}: " if fault.backend else ""
    return f"{of}{fault.reason.rstrip('.')}."


def _advice_text(fault: Fault) -> str:
    what = fault.hint or (
        "Log the program in, then resume the run."
        if fault.kind == "auth"
        else "Raise the limit or add credit, then resume the run."
    )
    return f"{_what_failed(fault)} {what}"


def _outage_text(fault: Fault) -> str:
    return (
        f"{_what_failed(fault)} It was tried again for "
        f"{_format_duration(fault.ladder.transient_max_wait_s)}, as long as "
        f"Ladder(transient_max_wait_s=) allows. Resume the run when it is over."
    )


def _cap_text(fault: Fault) -> str:
    return (
        f"{_what_failed(fault)} Its end is unknown or more than "
        f"{_format_duration(fault.ladder.cap_max_wait_s)} away, "
        f"longer than Ladder(cap_max_wait_s=) allows. Resume the run when it is over."
    )


def _format_duration(seconds: float) -> str:
    """A length of time: ``90 s``, ``24 hours``, ``8 days``."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
