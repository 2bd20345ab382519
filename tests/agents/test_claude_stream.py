"""What the lines of ``claude -p --output-format stream-json`` mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.agents.claude.protocol import ClaudeTurn
from handrail.agents.transport.parser import Ending
from handrail.model.events import (
    AgentCompaction,
    AgentLimit,
    AgentMessage,
    AgentSessionStarted,
    AgentToolStarted,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentTurn
from tests.agents.recorded import (
    NOW,
    Played,
    of_type,
    play,
    recorded,
    turn_of,
)

COST = 0.005220000000000001


def calls(number: int, turns: int | None = None, cost: float | None = None) -> Usage:
    """What this many calls of the stand-in for the model use."""
    return Usage(
        1900 * number,
        25 * number,
        COST * number if cost is None else cost,
        number if turns is None else turns,
        cached_tokens=400 * number,
        cache_write_tokens=300 * number,
        reasoning_tokens=0,
        cost_source="reply",
    )


def lines_of(case: str) -> list[dict[str, Any]]:
    """The events of a recorded run."""
    return [json.loads(line) for line in recorded("claude", case).splitlines()]


def say(*events: Any, turn: AgentTurn | None = None, ending: Ending | None = None) -> Played:
    """What is made of these events, after which claude exits with 1."""
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    return play(ClaudeTurn(turn or turn_of()), [lines.encode()], ending or Ending(1, now=NOW))


def init(**more: Any) -> dict[str, Any]:
    """How each run begins."""
    return {"type": "system", "subtype": "init", "session_id": "s-1", "model": "m-1", **more}


def assistant(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message of the model."""
    message = {"id": "msg", "role": "assistant", "model": "m-1-full", "content": list(blocks)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, **more}


def text(said: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": said}


def piece(said: str) -> dict[str, Any]:
    """A piece of a text that has not come whole."""
    delta = {"type": "text_delta", "text": said}
    return {"type": "stream_event", "event": {"type": "content_block_delta", "delta": delta}}


def complaint(said: str, **more: Any) -> dict[str, Any]:
    """The line in which claude tells of a failure in the model's place."""
    line = assistant(text(said), is_api_error_message=True, **more)
    line["message"]["model"] = "<synthetic>"
    return line


def result(said: str = "Done.", **more: Any) -> dict[str, Any]:
    """How a run ends; a success if nothing else is said."""
    success = {"subtype": "success", "is_error": False, "result": said, "session_id": "s-1"}
    return {**success, "num_turns": 1, **more, "type": "result"}


def failed(said: str, **more: Any) -> dict[str, Any]:
    """How a run ends whose request to the API failed."""
    return result(said, **{"is_error": True, "terminal_reason": "api_error", **more})


def test_a_retry_asks_for_patience() -> None:
    """Until the next line comes, claude may be silent for as long as it said it would wait."""
    parser = ClaudeTurn(turn_of())
    patience = []
    for line in recorded("claude", "rate_limit_429_2_retries").splitlines():
        parser.feed(line)
        patience.append(parser.extra_silence_s)
    assert patience == [0, 1.048, 1.228, 0, 0]


def test_without_an_event_the_reset_time_is_that_of_the_words() -> None:
    """Where no event told of the window, the sentence does."""
    events = [event for event in lines_of("usage_limit_oauth") if "rate_limit_info" not in event]
    events[1].pop("api_error_params")
    played = say(*events)
    assert played.error.kind == "usage_cap"
    assert played.error.retry_at == 1_795_296_900  # 21:35 UTC


# -- what the recordings do not show -------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([complaint("x", error="account_on_hold"), failed("x")], "auth"),
        ([complaint("x", error="oauth_org_not_allowed"), failed("x")], "auth"),
        ([complaint("x", error="verification_required"), failed("x")], "auth"),
        ([complaint("x", error="cloud_credential_error"), failed("x")], "auth"),
        ([complaint("x", error="server_error"), failed("x", api_error_status=529)], "transient"),
        ([complaint("x", error="overloaded"), failed("x")], "transient"),
        ([complaint("x", error="unknown"), failed("x")], "transient"),
        ([complaint("x", error="billing_error"), failed("x")], "spending_cap"),
        ([complaint("x", error="max_output_tokens"), failed("x")], "output_limit"),
        (
            [complaint("x", error="max_output_tokens", api_error_params={"cut": "context_window"})],
            "context_overflow",
        ),
        ([failed("x", api_error="max_output_tokens")], "output_limit"),
        (
            [
                failed(
                    "API Error: The model has reached its context window limit.",
                    api_error="max_output_tokens",
                )
            ],
            "context_overflow",
        ),
        ([failed("x", api_error="autocompact_thrashing")], "context_overflow"),
        ([failed("x", api_error="message_over_context_limit")], "context_overflow"),
        ([failed("x", terminal_reason="blocking_limit")], "context_overflow"),
        ([failed("x", terminal_reason="rapid_refill_breaker")], "context_overflow"),
        ([failed("x", api_error="model_requires_usage_credits")], "spending_cap"),
        ([failed("x", api_error="org_disabled_credential")], "auth"),
        ([failed("x", api_error="stream_idle_timeout")], "transient"),
        ([failed("x", api_error="computer_slept")], "transient"),
        ([failed("x", api_error="empty_completion")], "transient"),
        ([failed("x", terminal_reason="image_error")], "bad_request"),
        ([failed("x", terminal_reason="tool_deferred")], "interrupted"),
        ([result("x", terminal_reason="aborted_streaming")], "interrupted"),
        ([failed("x", stop_reason="refusal")], "refusal"),
        (
            [
                complaint("x", error="rate_limit", api_error="model_requires_usage_credits"),
                failed("x"),
            ],
            "spending_cap",
        ),
        ([result("I cannot help with that.", stop_reason="refusal")], "refusal"),
        ([failed("x", api_error_type="request_too_large")], "context_overflow"),
        ([failed("x", api_error_status=402)], "spending_cap"),
        ([failed("x", api_error_status=503)], "transient"),
        ([failed("something nobody has seen")], "transient"),
        ([result("x", subtype="error_during_execution", is_error=True)], "crashed"),
        ([result("x", subtype="error_of_a_new_kind", is_error=True)], "crashed"),
        ([failed('API Error: 529 {"type":"error"}', terminal_reason=None)], "transient"),
        ([failed("API Error: Request timed out.", terminal_reason=None)], "transient"),
        ([failed("OAuth token has expired. Please run /login", terminal_reason=None)], "auth"),
        ([complaint("Not logged in · Please run /login", error="authentication_failed")], "auth"),
        ([result("Unknown command: /frobnicate", num_turns=0)], "bad_request"),
    ],
)  # fmt: skip
def test_every_way_to_fail_has_a_kind(events: list[Any], kind: str) -> None:
    """What the result, or the assistant line before it, says in fields decides; then the words."""
    assert say(init(), *events).error.kind == kind


@pytest.mark.parametrize(
    ("said", "kind", "retry_at"),
    [
        ("You've hit your session limit · resets 9:35pm (UTC)", "usage_cap", 1_795_296_900),
        ("You've hit your org's limit · resets Dec 1, 12am (UTC)", "usage_cap", 1_796_083_200),
        ("You're out of usage credits · resets 9:35pm (UTC)", "usage_cap", 1_795_296_900),
        ("You're out of usage credits", "spending_cap", None),
        ("Your org is out of usage · add funds to continue", "spending_cap", None),
        ("You've hit your monthly spend limit.", "spending_cap", None),
        (
            "You've hit your session limit · resets 9:35pm (UTC) · contact an admin to add funds",
            "usage_cap",
            1_795_296_900,
        ),
        ("Your seat type doesn't include usage credits", "spending_cap", None),
        ("API Error: Request rejected (429) · retry after 30 seconds", "rate_limit", NOW + 30),
        ("Claude AI usage limit reached|1795296912", "usage_cap", 1_795_296_912),
    ],
)  # fmt: skip
def test_the_words_of_a_limit_say_which_it_is(said: str, kind: str, retry_at: float | None) -> None:
    """A window of the plan opens by itself; money and credits do not; the rest is for a moment."""
    error = say(init(), complaint(said, error="rate_limit"), failed(said)).error
    assert (error.kind, error.retry_at) == (kind, retry_at)
    old = say(init(), failed(said, terminal_reason=None, api_error_status=None)).error
    assert (old.kind, old.retry_at) == (kind, retry_at)


def window(**more: Any) -> dict[str, Any]:
    """A window of the plan that is used up."""
    info = {"status": "rejected", "resetsAt": 1_795_296_912, "rateLimitType": "five_hour", **more}
    return {"type": "rate_limit_event", "rate_limit_info": info}


@pytest.mark.parametrize("lines", [[], [complaint("API Error: 429", error="rate_limit")]])
@pytest.mark.parametrize(
    ("more", "kind", "retry_at"),
    [
        ({}, "usage_cap", 1_795_296_912),
        ({"isUsingOverage": False}, "usage_cap", 1_795_296_912),
        ({"overageStatus": "rejected", "isUsingOverage": True}, "usage_cap", 1_795_296_912),
        ({"overageStatus": "allowed", "isUsingOverage": True}, "rate_limit", None),
        ({"overageStatus": "allowed_warning"}, "rate_limit", None),
        ({"isUsingOverage": True}, "rate_limit", None),
    ],
)
def test_a_refused_request_after_a_used_up_window_waits_for_it(
    lines: list[Any], more: dict[str, Any], kind: str, retry_at: float | None
) -> None:
    """Also if it has no words of its own; not while use beyond the plan is paid for."""
    end = failed("API Error: 429", api_error_status=429)
    played = say(init(), window(**more), *lines, end)
    assert (played.error.kind, played.error.retry_at) == (kind, retry_at)
    status = "warning" if kind == "rate_limit" else "reached"
    assert [one.status for one in of_type(played.notices, AgentLimit)] == [status]


def test_a_limit_of_the_api_says_when_it_ends() -> None:
    """A limit that the organisation set needs a person, or the day that the words name."""
    said = (
        "API Error: 400 You have reached your specified API usage limits. "
        "You will regain access on 2026-12-01 at 00:00 UTC."
    )
    error = say(init(), complaint(said, error="invalid_request"), failed(said)).error
    assert (error.kind, error.retry_at, error.http_status) == ("spending_cap", 1_796_083_200, 400)


@pytest.mark.parametrize("said", ["Your quota is fine.", "rate limit 429 · resets 9:35pm (UTC)"])
def test_a_success_may_speak_of_anything(said: str) -> None:
    """The words of an answer that is not flagged are never read for reasons."""
    assert say(init(), assistant(text(said)), result(said)).reply.text == said


def test_a_success_after_a_complaint_needs_the_model_to_have_spoken() -> None:
    """An error in the model's place is a failure also if the result does not say so."""
    trouble = complaint("API Error: 500", error="server_error")
    assert say(init(), trouble, result("API Error: 500")).error.kind == "transient"
    assert say(init(), trouble, assistant(text("Done.")), result()).reply.text == "Done."


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', "transient"),
        ("Claude AI usage limit reached|1795296912", "usage_cap"),
        ("Invalid API key · Please run /login", "auth"),
    ],
)
def test_claudes_own_words_for_a_failure_are_no_answer(said: str, kind: str) -> None:
    """Older programs flag neither line nor result; what the model says in such words is its own."""
    unflagged = assistant(text(said))
    unflagged["message"]["model"] = "<synthetic>"
    for lines in ([unflagged], [assistant(text("Half.")), unflagged], []):
        played = say(init(), *lines, result(said))
        assert played.error.kind == kind
        assert said not in [one.text for one in of_type(played.notices, AgentMessage)]
    assert say(init(), assistant(text(said)), result(said)).reply.text == said


def test_an_empty_result_does_not_hide_what_the_model_said() -> None:
    """The answer is what its last message holds."""
    assert say(init(), assistant(text("Done.")), result("")).reply.text == "Done."


def test_a_command_of_claudes_own_is_no_answer() -> None:
    """It took the prompt for one, and asked no model."""
    helped = result("Usage: ...", num_turns=0)
    error = say(init(), helped, turn=turn_of(prompt="/help me")).error
    assert (error.kind, "took the prompt for a command" in error.reason) == ("bad_request", True)
    assert "another character" in error.hint
    assert say(init(), helped, turn=turn_of(prompt="/compact")).reply.text == "Usage: ..."
    silent = say(init(), result("", num_turns=0), turn=turn_of(prompt="/compact the tests")).error
    assert silent.reason.endswith("a command of its own (/compact), and asked no model")


def test_a_refusal_may_be_told_by_the_line_alone() -> None:
    """The result of a refused request may name the end of the program's own message."""
    refused = complaint("x", error="invalid_request")
    refused["message"]["stop_reason"] = "refusal"
    assert say(init(), refused, failed("x", stop_reason="stop_sequence")).error.kind == "refusal"


def test_a_failure_without_words_is_not_called_a_success() -> None:
    """The subtype is no reason if it says ``success``."""
    assert say(init(), result("", is_error=True)).error.reason.endswith("it did not say why")


def test_what_is_printed_again_is_not_told_again() -> None:
    """A line, a block in a later line of its message, or a result that comes twice counts once."""
    hello = assistant(text("Hello."))
    more = assistant(text("Hello."), {"type": "tool_use", "id": "t", "name": "Bash", "input": {}})
    end = result("Hello.", usage={"input_tokens": 7, "output_tokens": 2}, total_cost_usd=0.5)
    played = say(init(), hello, hello, more, end, end)
    assert of_type(played.notices, AgentMessage) == [AgentMessage("s", "Hello.")]
    assert played.reply.usage == Usage(7, 2, 0.5, 1, cost_source="reply")
    assert say(init(), hello, end, hello, end).finished
    early = say(init(), result("Done."), assistant(text("Done.")))
    assert of_type(early.notices, AgentMessage) == [AgentMessage("s", "Done.")]


def test_pieces_are_the_message_also_without_the_blanks_around_it() -> None:
    """A message that comes trimmed after its pieces is not told again."""
    played = say(init(), piece("\nHello "), piece("you\n"), assistant(text("Hello you")), result())
    assert [one.text for one in of_type(played.notices, AgentMessage)][:3] == [
        "\nHello ",
        "you\n",
        "Done.",
    ]


def test_a_compaction_is_told_once_in_whichever_order_it_ends() -> None:
    """The counts may come before or after the word that it succeeded."""
    begun = {"type": "system", "subtype": "status", "status": "compacting"}
    well = {"type": "system", "subtype": "status", "status": None, "compact_result": "success"}
    counts = {"pre_tokens": 9, "post_tokens": 3}
    bound = {"type": "system", "subtype": "compact_boundary", "compact_metadata": counts}
    ended = [AgentCompaction("s", "started"), AgentCompaction("s", "completed", 9, 3)]
    for order in ([begun, well, bound], [begun, bound, well]):
        played = say(init(), *order, *order, assistant(text("Done.")), result())
        assert of_type(played.notices, AgentCompaction) == ended * 2


def test_a_first_turn_whose_usage_is_missing_used_the_total() -> None:
    """Of a session that was not resumed the table of models is this turn's."""
    models = {"m": {"inputTokens": 1, "cacheReadInputTokens": 2, "outputTokens": 4}}
    end = result(usage=None, modelUsage=models)
    assert say(init(), end).reply.usage == Usage(3, 4, turns=1, cached_tokens=2)
    resumed = say(init(), end, turn=turn_of(session="old")).reply.usage
    assert resumed == Usage(turns=1)


def test_a_result_counts_though_claude_was_stopped_after_it() -> None:
    """A success before a hang, a kill or an interruption is a success, if no work came between."""
    done = (init(), assistant(text("Done.")), result())
    late = result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    for ending in (Ending(-9), Ending(143, "idle_timeout"), Ending(None, "interrupted")):
        assert say(*done, ending=ending).reply.text == "Done."
        assert say(*done, late, ending=ending).reply.text == "Done."


def task(subtype: str, **more: Any) -> dict[str, Any]:
    """A line about what runs in the background."""
    return {"type": "system", "subtype": subtype, "task_id": "t1", "tool_use_id": "u1", **more}


def listed(*tasks: str) -> dict[str, Any]:
    """The list of what runs in the background, as newer programs print it."""
    tasks_ = [{"task_id": one} for one in tasks]
    return {"type": "system", "subtype": "background_tasks_changed", "tasks": tasks_}


def told(use: str = "u1", **details: Any) -> dict[str, Any]:
    """The result of a tool."""
    block = {"type": "tool_result", "tool_use_id": use, "content": "ok"}
    message = {"role": "user", "content": [block]}
    return {"type": "user", "message": message, "tool_use_result": details}


WAITING = (assistant(text("I wait.")), result("I wait."))
OPEN: dict[str, list[dict[str, Any]]] = {
    "the first words of a resumed session": [init(), result("A task died.", num_turns=0)],
    "a task that was started": [init(), task("task_started"), told(backgroundTaskId="t1"),
                                *WAITING],
    "a sub-agent that was started": [init(), task("task_started"), told(isAsync=True), *WAITING],
    "a task that is listed": [init(), listed("t1"), task("task_started", is_backgrounded=True),
                              *WAITING],
    "a task whose end came after": [init(), listed("t1"), *WAITING, listed()],
    "a task that was ended after": [init(), task("task_started"), *WAITING,
                                    task("task_notification", status="stopped")],
    "one of two": [init(), listed("t1", "t2"), listed("t2"), *WAITING],
    "a prompt that waits": [init(), assistant(text("One.")), result("One.", queued_turn_count=1)],
    "a new turn": [init(), *WAITING, init()],
    "a new line": [init(), *WAITING, assistant(text("More."))],
    "a tool's end": [init(), *WAITING, told()],
    "a piece": [init(), *WAITING, piece("Mo")],
    "a task that began after": [init(), *WAITING, task("task_started")],
    "a task that is listed after": [init(), *WAITING, listed("t1")],
    "a task that began and ended after": [init(), *WAITING, listed("t1"), listed()],
    "a session made smaller after": [init(), *WAITING,
                                     {"type": "system", "subtype": "status",
                                      "status": "compacting"}],
    "a request that failed": [init(), *WAITING,
                              {"type": "system", "subtype": "api_retry", "attempt": 1}],
}  # fmt: skip
ABORTED = result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
CAPPED = (complaint("You've hit your session limit", error="rate_limit"),
          failed("You've hit your session limit", api_error="usage_limit_reached"))  # fmt: skip
BROKEN = (complaint("API Error: 500", error="server_error"), failed("x", api_error_status=500))


@pytest.mark.parametrize("case", OPEN)
@pytest.mark.parametrize(
    ("then", "ending", "kind"),
    [
        ([], Ending(0), "crashed"),
        ([], Ending(1), "crashed"),
        ([], Ending(-9), "crashed"),
        ([], Ending(143, "idle_timeout"), "timeout"),
        ([], Ending(None, "interrupted"), "interrupted"),
        ([ABORTED], Ending(0), "interrupted"),
        (CAPPED, Ending(1), "usage_cap"),
        (BROKEN, Ending(1), "transient"),
        (BROKEN[:1], Ending(1), "transient"),
    ],
)
def test_open_work_needs_a_result_of_its_own(
    case: str, then: list[Any], ending: Ending, kind: str
) -> None:
    """However a turn dies after a result that was not its end, it is a failure with its kind."""
    before = say(*OPEN[case], ending=ending)
    assert before.finished is False
    assert say(*OPEN[case], *then, ending=ending).error.kind == kind
    rest = [task("task_notification", status="completed"), listed(), init(),
            assistant(text("All done.")), result("All done.")]  # fmt: skip
    whole = say(*OPEN[case], *rest, ending=ending)
    assert (whole.finished, whole.reply.text) == (True, "All done.")


def test_while_a_task_runs_in_the_background_silence_is_no_hang() -> None:
    """It has the patience of a tool, also after a result; its end takes that away."""
    asleep = say(init(), task("task_started"), told(backgroundTaskId="t1"), *WAITING)
    assert (asleep.finished, asleep.open_tools) == (False, 1)
    assert "1 of its tasks had not ended" in asleep.error.reason
    ended = task("task_updated", patch={"status": "completed"})
    assert say(init(), task("task_started"), ended, *WAITING).open_tools == 0


@pytest.mark.parametrize(
    "lines",
    [
        [task("task_started", is_backgrounded=False), told()],
        [task("task_started"), told()],
        [task("task_started"), task("task_notification", status="completed"), told()],
        [listed("t1"), task("task_started"), task("task_progress"), listed(), told()],
    ],
)
def test_a_task_that_its_tool_waited_for_is_over_with_it(lines: list[Any]) -> None:
    """Claude tells of long commands in the foreground as of those in the background."""
    assert say(init(), *lines, assistant(text("Done.")), result()).finished


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (failed("x", terminal_reason="aborted_tools"), "timeout"),
        (result("x", subtype="error_during_execution", is_error=True), "timeout"),
        (result("x", subtype="error_of_a_new_kind", is_error=True), "crashed"),
        (failed("x", subtype="error_during_execution", api_error_status=402), "spending_cap"),
        (failed("x", api_error_status=402), "spending_cap"),
    ],
)
def test_a_failure_that_claude_tells_when_it_is_stopped_may_be_the_stop(
    end: dict[str, Any], kind: str
) -> None:
    """What says no more than that it broke off is; what names a reason keeps that reason."""
    assert say(init(), end, ending=Ending(143, "idle_timeout", now=NOW)).error.kind == kind


def test_the_last_of_several_results_is_the_answer() -> None:
    """Claude may go on after a result, which it says at once or not, until there is no more."""
    parser = ClaudeTurn(turn_of())
    states = []
    for event in (
        init(),
        assistant(text("One.")),
        result("One.", queued_turn_count=1),
        init(),
        result("Two.", queued_turn_count=0),
        assistant(text("Three?")),
        result("Three.", num_turns=4),
    ):
        parser.feed(json.dumps(event).encode())
        states.append(parser.finished)
    assert states == [False, False, False, False, True, False, True]
    reply = parser.conclude(Ending(0))
    assert (reply.text, reply.usage) == ("Three.", Usage(turns=6))


def test_a_sub_agent_does_not_answer() -> None:
    """Of a sub-agent the tools are told, its words and failures are not the agent's."""
    below = {"parent_tool_use_id": "task-1"}
    use = {"type": "tool_use", "id": "t-2", "name": "Read", "input": {"file_path": "a"}}
    played = say(
        init(),
        assistant({"type": "tool_use", "id": "task-1", "name": "Task", "input": {}}),
        assistant(text("I am below."), **below),
        {**piece("I am"), **below},
        assistant(use, **below),
        complaint("API Error: 500", error="server_error", **below),
    )
    assert [one.name for one in of_type(played.notices, AgentToolStarted)] == ["Task", "Read"]
    assert of_type(played.notices, AgentMessage) == []
    assert (played.error.kind, played.error.text, played.open_tools) == ("crashed", "", 2)


def test_a_turn_that_breaks_off_leaves_what_was_said() -> None:
    """The last words of the model are the error's text, and not the program's own."""
    played = say(init(), assistant(text("Half way.")), complaint("API Error", error="unknown"))
    assert (played.error.text, played.error.kind) == ("Half way.", "transient")
    assert played.error.model == "m-1-full"


def test_pieces_of_an_answer_that_was_begun_anew_are_followed_by_all_of_it() -> None:
    """After a stream that broke off, a message that does not continue its pieces is told whole."""
    same = say(init(), piece("He"), assistant(text("Hello.")), result("Hello."))
    other = say(init(), piece("He"), assistant(text("Bye.")), result("Bye."))
    assert [one.text for one in of_type(same.notices, AgentMessage)] == ["He", "llo."]
    assert [one.text for one in of_type(other.notices, AgentMessage)] == ["He", "Bye."]


def test_files_that_were_written_are_listed() -> None:
    """Files of tools that write and succeeded are listed once, in their order."""

    def wrote(use: str, name: str, file: str, *, is_error: bool = False) -> list[Any]:
        given = {"file_path": file}
        ended = {"type": "tool_result", "tool_use_id": use, "content": "x", "is_error": is_error}
        return [
            assistant({"type": "tool_use", "id": use, "name": name, "input": given}),
            {"type": "user", "message": {"role": "user", "content": [ended]}},
        ]

    events = [
        *wrote("1", "Write", "b.py"),
        *wrote("2", "Edit", "a.py"),
        *wrote("3", "Edit", "b.py"),
        *wrote("4", "Write", "no.py", is_error=True),
        *wrote("5", "Read", "read.py"),
    ]
    assert say(init(), *events, result()).reply.files_changed == ("b.py", "a.py")


def test_a_schema_that_was_ignored_leaves_no_value() -> None:
    """A success without a structured answer has none, and is the caller's to ask again."""
    turn = turn_of(schema={"type": "object"})
    for ignored in (result(), result(structured_output=None)):
        assert say(init(), ignored, turn=turn).reply.has_value is False


def test_a_lone_result_object_is_enough() -> None:
    """With ``--output-format json`` the result is all there is, and says session and model."""
    played = say(result(modelUsage={"m-2": {}}, total_cost_usd=0.5))
    assert (played.reply.text, played.reply.session, played.reply.model) == ("Done.", "s-1", "m-2")
    assert played.notices[:2] == (
        AgentSessionStarted("s", "s-1", "claude"),
        AgentMessage("s", "Done."),
    )


BEFORE = calls(1)


def without_delta(case: str, **more: Any) -> dict[str, Any]:
    """The result of a case as programs print it that do not know this turn's part."""
    found: dict[str, Any] = {**lines_of(case)[-1], **more}
    del found["model_usage_since_last_result"]
    return found


@pytest.mark.parametrize(
    ("event", "before", "cost", "total"),
    [
        # totals of the session: this turn's part is told, or the difference, or unknown
        (lines_of("resume_2_same_cwd")[-1], None, COST, 2 * COST),
        (without_delta("resume_2_same_cwd"), BEFORE, COST, 2 * COST),
        (without_delta("resume_2_same_cwd"), Usage(cost_usd=COST), COST, 2 * COST),
        (without_delta("resume_2_same_cwd"), None, None, 2 * COST),
        (without_delta("resume_2_same_cwd", modelUsage=None), BEFORE, COST, 2 * COST),
        # totals of the process alone
        (without_delta("text"), BEFORE, COST, 2 * COST),
        (without_delta("text"), None, COST, None),
    ],
)
def test_the_usage_of_a_resumed_session_is_the_difference(
    event: dict[str, Any], before: Usage | None, cost: float | None, total: float | None
) -> None:
    """Cost is this turn's alone however the program counts it, and unknown if it cannot be told."""
    reply = say(init(), event, turn=turn_of(session="old", session_usage=before)).reply
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1900, 25)
    assert reply.usage.cost_usd == pytest.approx(cost)
    known = None if reply.session_usage is None else reply.session_usage.cost_usd
    assert known == pytest.approx(total)


def test_a_line_of_many_megabytes_is_read() -> None:
    """No length is too long, and text in the result that was told before is not told again."""
    long = "x" * (5 << 20)
    played = say(init(), assistant(text(long)), result(long))
    assert len(played.reply.text) == 5 << 20
    assert len(of_type(played.notices, AgentMessage)) == 1
