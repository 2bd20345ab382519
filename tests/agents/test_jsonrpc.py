"""Requests and their answers, in JSON-RPC."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.transport.rpc import (
    METHOD_NOT_FOUND,
    Notification,
    Peer,
    Reply,
    Request,
    RpcError,
    answer,
    encode,
    notification,
    refusal,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
messages = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]), json_values
)


def test_requests_are_numbered() -> None:
    """Each request has an id of its own."""
    peer = Peer()
    assert peer.request("one", {"a": 1}) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "one",
        "params": {"a": 1},
    }
    assert peer.request("two", {})["id"] == 2


@pytest.mark.parametrize("number", [2, 2.0, "2"])
def test_an_answer_is_known_by_its_id(number: Any) -> None:
    """Answers come in any order, without ``jsonrpc``, and with their id as text."""
    peer = Peer()
    peer.request("one", {})
    peer.request("two", {})
    assert peer.parse({"id": number, "result": {"x": 1}}) == Reply(2, "two", {"x": 1})
    assert peer.parse({"id": 1, "result": None}) == Reply(1, "one", {})


def test_an_answer_counts_once() -> None:
    """The second answer to a request is none, as is one to what was never asked."""
    peer = Peer()
    peer.request("one", {})
    assert peer.parse({"id": 7, "result": {}}) is None
    assert peer.parse({"id": 1}) is None
    assert peer.parse({"id": 1, "result": {}}) == Reply(1, "one", {})
    assert peer.parse({"id": 1, "result": {}}) is None


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"code": 5, "message": "no", "data": [1]}, RpcError("no", 5, [1])),
        ({"code": "5"}, RpcError("it gave no reason")),
        ("just words", RpcError("just words")),
        (["odd"], RpcError("it gave no reason")),
    ],
)
def test_an_error_is_an_answer(told: Any, error: RpcError) -> None:
    """An error answers a request, whatever its form."""
    peer = Peer()
    peer.request("one", {})
    assert peer.parse({"id": 1, "error": told}) == Reply(1, "one", {}, error)


@pytest.mark.parametrize("number", [0, "a", 1])
def test_what_the_other_side_asks_is_no_answer(number: Any) -> None:
    """A request from the other side has an id of its own, which may be one of ours; 0 is one."""
    peer = Peer()
    peer.request("one", {})
    asked = peer.parse({"id": number, "method": "may I?", "params": {"x": 1}})
    assert asked == Request(number, "may I?", {"x": 1})
    assert answer(asked, {"yes": True}) == {
        "jsonrpc": "2.0",
        "id": number,
        "result": {"yes": True},
    }
    assert refusal(asked, "no")["error"] == {"code": METHOD_NOT_FOUND, "message": "no"}


def test_what_has_no_id_expects_no_answer() -> None:
    """A message with a method and no id tells something; odd parameters are none."""
    assert Peer().parse({"method": "told", "params": [1]}) == Notification("told", {})
    assert notification("told") == {"jsonrpc": "2.0", "method": "told"}
    assert notification("told", {"a": 1})["params"] == {"a": 1}


def test_a_message_is_one_line() -> None:
    """A message has its newline at its end, and none in it, whatever it says."""
    line = encode(notification("say", {"text": "a\nb\u2028ü\ud83d"}))
    assert line.count(b"\n") == 1
    assert json.loads(line)["params"]["text"] == "a\nb\u2028ü?"


@given(messages)
def test_no_message_raises(message: dict[str, Any]) -> None:
    """Whatever comes is an answer, a question, something told, or nothing."""
    peer = Peer()
    peer.request("one", {})
    assert isinstance(peer.parse(message), Reply | Request | Notification | None)
