"""What holds for every recorded run and conversation, of whichever program."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.agents.transport.parser import Ending
from handrail.errors import AgentError
from handrail.ports.agent import AgentReply
from tests.agents.readings import (
    DIALOGUES,
    PARSERS,
    cases,
    kept,
    listen,
    parser_for,
    read,
    readings,
)
from tests.agents.recorded import NOW, case_names, ending_of, in_pieces, play, recorded, turn_of
from tests.agents.rpc_recorded import hold, received, sent, with_unknown
from tests.agents.test_jsonrpc import json_values

RUNS = [(program, case) for program in PARSERS for case in case_names(program)]
CONVERSATIONS = [(protocol, case) for protocol in DIALOGUES for case in cases(protocol)]
SUCCESS = {"claude": b'"type":"result"'}
"""In which line an answer is whole; elsewhere it is the last one."""


@pytest.mark.parametrize("name", [*PARSERS, *DIALOGUES])
def test_a_recording_is_read_as_it_was_when_somebody_last_looked(name: str) -> None:
    """Notices, answer or failure, and usage are those in `readings.json`, however it was stopped.

    After a change that is meant: `python -m tests.agents.readings`, and read what differs.
    """
    assert readings(name) == kept(name)


# -- lines ---------------------------------------------------------------------------------------


@given(st.sampled_from(RUNS), st.data())
def test_the_cuts_of_a_stream_change_nothing(run: tuple[str, str], data: st.DataObject) -> None:
    """However the bytes are cut into pieces, also within a character, and whatever is on stderr in
    between, all is as it was.
    """
    pieces = data.draw(in_pieces(recorded(*run)))
    assert play(parser_for(*run), pieces, ending_of(*run)).summary == read(*run).summary


@pytest.mark.parametrize(("program", "case"), RUNS)
def test_a_stream_that_breaks_off_is_no_answer(program: str, case: str) -> None:
    """Cut after any line but that of a whole answer, even with exit code 0, there is none."""
    lines = recorded(program, case).splitlines(keepends=True)
    for length in range(len(lines)):
        if program in SUCCESS and any(SUCCESS[program] in line for line in lines[:length]):
            break
        half = lines[length][: len(lines[length]) // 2]
        for code in (0, 1, -9):
            for said in (lines[:length], [*lines[:length], half]):
                played = play(parser_for(program, case), said, Ending(code, now=NOW))
                assert isinstance(played.outcome, AgentError)


ON_TERMINALS = (
    (b"\x1b[?25l\x1b[0m", b"\x1b[0m"),
    (b"\x1b]0;a title\x07", b"\x1b]8;;\x1b\\"),
    (b"\x1b]9;4;3;\x1b\\\xef\xbb\xbf", b"\x1b[?25h"),
    (b"\r\r", b"\r"),
    (b"Loading... 10%\rLoading... 99%\r\x1b[K", b"\x1b[1m \x1b[22m"),
    (b"\x1b[2K\x1b[1G\xe2\xa0\x8b Thinking...\x1b[1G\x1b[0K", b"\x1b]133;D\x07"),
    (b"\xe2\xa0\x8b 50% [##  ] ".replace(b"[##  ]", b"|"), b"  "),
    (b"\x1bP1$r0m\x1b\\\x1b(B\xc2\x9b1m\x00|\x08/\x08", b"\x00"),
)
"""What programs that take their output for a terminal print before and after a line."""


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_codes_for_a_terminal_around_a_line_change_nothing(run: tuple[str, str]) -> None:
    """Nothing of a turn, which may be paid for, is lost to them, whichever the program."""
    for number in range(len(ON_TERMINALS)):
        noisy = b""
        for at, line in enumerate(recorded(*run).splitlines(), number):
            before, after = ON_TERMINALS[at % len(ON_TERMINALS)]
            noisy += before + line + after + b"\n"
        assert play(parser_for(*run), [noisy], ending_of(*run)).summary == read(*run).summary


NOISE = (
    {"type": "a_new_event", "data": [1, 2], "item": {"type": "turn.completed"}},
    {"type": "system", "subtype": "a_new_one", "session_id": "other"},
    {"type": "control_response", "response": {}},
    {"type": "stream_event", "event": {"type": "ping"}},
    {"type": "new.thing", "data": {"exitCode": 0, "content": "x"}, "exitCode": 0, "content": "x"},
    {"subtype": "success"},
    [],
    {},
    None,
    5,
    "result",
)


def with_news(line: Any, news: Any) -> Any:
    """The same line with a field more, also in what it tells of."""
    inner = {
        name: {**line[name], "a_new_field": news}
        for name in ("item", "data", "part", "message")
        if isinstance(line, dict) and isinstance(line.get(name), dict)
    }
    return {**line, **inner, "a_new_field": news} if isinstance(line, dict) else line


@given(st.sampled_from(RUNS), st.data())
def test_what_is_not_known_changes_nothing(run: tuple[str, str], data: st.DataObject) -> None:
    """Fields, events and lines of later versions, and other programs' output, are passed over."""
    events: list[Any] = []
    for line in recorded(*run).splitlines():
        events += data.draw(st.lists(st.sampled_from(NOISE), max_size=2))
        news = data.draw(st.sampled_from([None, 1, [{}], {"error": "x"}, "rate limit"]))
        events.append(with_news(json.loads(line), news))
    stream = b"warning: hm\n\n\xff\xfe{\n" + b"\n\r\n".join(json.dumps(e).encode() for e in events)
    noisy = play(parser_for(*run), [stream + b'\n{"type": "resu'], ending_of(*run))
    assert noisy.summary == read(*run).summary


EVENTS = {
    program: [
        json.loads(line)
        for name, case in RUNS
        if name == program
        for line in recorded(name, case).splitlines()
    ]
    for program in PARSERS
}


def spoilt(event: Any, choose: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """The event with some of its values, at any depth, replaced by others."""
    if choose(st.integers(0, 7)) == 0:
        return choose(json_values)
    if isinstance(event, dict):
        return {name: spoilt(value, choose) for name, value in list(event.items())[:12]}
    return [spoilt(one, choose) for one in event] if isinstance(event, list) else event


@pytest.mark.parametrize("program", PARSERS)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data(), noise=st.binary())
def test_nothing_that_is_printed_raises(program: str, data: st.DataObject, noise: bytes) -> None:
    """Whatever type a field has, lines give notices and a run gives an answer or an AgentError."""
    events = data.draw(st.lists(st.sampled_from(EVENTS[program]), max_size=4))
    lines = [json.dumps(spoilt(event, data.draw)).encode() for event in events]
    lines += [start + noise for start in (b"", b"{", b"[", b'{"type":')]
    usage = data.draw(st.sampled_from([None, read("claude", "text").reply.usage]))
    parser = PARSERS[program](turn_of(session_usage=usage))
    for line in lines:
        parser.feed_stderr(line)
        assert all(notice.path == "s" for notice in parser.feed(line))
        assert parser.extra_silence_s >= 0
    ending = Ending(data.draw(st.sampled_from([0, 1])), stderr="x", now=NOW)
    outcome = play(PARSERS[program](turn_of()), [b"\n".join(lines)], ending).outcome
    assert isinstance(outcome, AgentReply) or (outcome.kind and outcome.reason)


# -- conversations -------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "case"), CONVERSATIONS)
def test_what_is_sent_is_what_was_sent_then(protocol: str, case: str) -> None:
    """The conversation takes the same steps as the recorded one, and begins with the same of what
    the program may offer us.
    """
    then, now = sent(protocol, case), listen(protocol, case).sent
    left_out = ("session/cancel", "turn/interrupt")
    methods = [message.get("method") for message in then]
    assert [message.get("method") for message in now] == [m for m in methods if m not in left_out]
    for name in ("capabilities", "clientCapabilities"):
        assert now[0]["params"].get(name) == then[0]["params"].get(name)


@pytest.mark.parametrize(("protocol", "case"), CONVERSATIONS)
def test_a_conversation_that_breaks_off_has_no_answer(protocol: str, case: str) -> None:
    """Without the end of the turn there is none, whatever was said before and the exit code."""
    messages = received(protocol, case)
    last = max(
        at
        for at, message in enumerate(messages)
        if (message.get("method") == "turn/completed" or protocol == "acp")
        and (message.get("id") == 3 or protocol != "acp")
    )
    for length in range(last):
        got = hold(DIALOGUES[protocol](turn_of()), messages[:length])
        assert not got.finished
        assert got.error.kind == "crashed"


@pytest.mark.parametrize(("protocol", "case"), CONVERSATIONS)
def test_unknown_fields_and_messages_change_nothing(protocol: str, case: str) -> None:
    """A newer agent says more, or of another session; what is known means the same."""
    update = {"sessionUpdate": "state_update", "state": "new"}
    news = [
        {"method": "_x/notice", "params": {"x": [1]}},
        {"method": "session/update", "params": {"sessionId": "s1", "update": update}},
        {"id": 77, "result": {}},
    ]
    more = [one for m in received(protocol, case) for one in (*news, with_unknown(m))]
    assert hold(DIALOGUES[protocol](turn_of()), more).summary == listen(protocol, case).summary


@pytest.mark.parametrize("protocol", DIALOGUES)
@settings(max_examples=settings().max_examples * 3 // 4)
@given(st.lists(json_values, max_size=6), st.data(), st.randoms())
def test_no_message_raises(
    protocol: str, values: list[Any], data: st.DataObject, chance: random.Random
) -> None:
    """Anything may come at any moment, also in the place of what should be there."""
    messages = deepcopy(received(protocol, data.draw(st.sampled_from(cases(protocol)))))
    for value in values:
        spoiled = chance.choice([one for one in messages if isinstance(one, dict) and one])
        at = spoiled.get("params") or spoiled.get("result") or spoiled
        inner = at.get("update") if isinstance(at, dict) else None
        place = chance.choice([spoiled, at, inner or at])
        if isinstance(place, dict) and place:
            place[chance.choice(list(place))] = value
        messages.insert(chance.randrange(len(messages)), value)
    turn = turn_of(session=chance.choice([None, "x"]), compact=chance.random() < 0.5)
    hold(DIALOGUES[protocol](turn), messages)
