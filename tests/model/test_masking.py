from __future__ import annotations

import enum
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.engine.bus import masked_event
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import OpenGate, StepResult
from handrail.secrets.masking import Mask
from handrail.secrets.tokens import LONGEST_TOKEN
from handrail.secrets.values import Secrets, secret_values
from handrail.testing.contracts.sample_events import sample_events, sample_progress

VALUES = {
    "API_KEY": "hunter2!",
    "LONG_KEY": "hunter2!hunter3!",
    "DB_PASSWORD": 'p"a\\s\ns-é/ w',
    "NIGHT_TOKEN": "er2!-and-more-of-it",
}
TOKEN = "ghp_" + "a1B2" * 9
MASK = Mask(secret_values(Secrets(), VALUES))
KEY = VALUES["API_KEY"]


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    password: Any


@attrs.frozen
class Frozen:
    password: str


class Struct(msgspec.Struct, frozen=True):
    password: str


class Named(NamedTuple):
    password: str
    n: int = 1


class Colour(enum.Enum):
    RED = "hunter2!"


class Listed(list[Any]):
    """A list of one's own."""


SHOWN: list[tuple[Any, Any]] = [
    (f"use {KEY}", "use ${API_KEY}"),
    ([1, KEY], [1, "${API_KEY}"]),
    ((KEY, None), ("${API_KEY}", None)),
    ({"k": [KEY]}, {"k": ["${API_KEY}"]}),
    ({KEY: 1}, {"${API_KEY}": 1}),
    ({1: {2: KEY}}, {1: {2: "${API_KEY}"}}),
    ({KEY}, {"${API_KEY}"}),
    (frozenset({KEY}), frozenset({"${API_KEY}"})),
    (deque([KEY], 3), deque(["${API_KEY}"], 3)),
    (OrderedDict(a=KEY), OrderedDict(a="${API_KEY}")),
    (MappingProxyType({"a": KEY}), {"a": "${API_KEY}"}),
    (Listed([KEY]), Listed(["${API_KEY}"])),
    (b"\x00" + KEY.encode() + b"\xff", b"\x00${API_KEY}\xff"),
    ([VALUES["DB_PASSWORD"].encode()], [b"${DB_PASSWORD}"]),
    (Login("ann", KEY), Login("ann", "${API_KEY}")),
    (Login("ann", Login("bob", [KEY])), Login("ann", Login("bob", ["${API_KEY}"]))),
    (Frozen(KEY), Frozen("${API_KEY}")),
    (Struct(KEY), Struct("${API_KEY}")),
    (Named(KEY), Named("${API_KEY}")),
    (PurePosixPath(f"a/{KEY}"), PurePosixPath("a/${API_KEY}")),
    ([2**80, KEY], [2**80, "${API_KEY}"]),
    (["\ud800", KEY], ["\ud800", "${API_KEY}"]),
    (TOKEN, "ghp_***a1B2"),
    ([TOKEN.encode()], [b"ghp_***a1B2"]),
    ({"a": f"Bearer {TOKEN}"}, {"a": "Bearer ghp_***a1B2"}),
    (quote(VALUES["DB_PASSWORD"]), "${DB_PASSWORD}"),
    (quote(VALUES["DB_PASSWORD"], safe=""), "${DB_PASSWORD}"),
    (quote_plus(VALUES["DB_PASSWORD"]), "${DB_PASSWORD}"),
]


@pytest.mark.parametrize(("value", "shown"), SHOWN, ids=lambda it: type(it).__name__)
def test_a_value_is_shown_without_its_secrets(value: Any, shown: Any) -> None:
    """Secrets are masked however they are nested, and the value keeps its type."""
    found = MASK.value(value)
    assert found == shown
    assert type(found) is type(shown)


class Odd:
    """An object that says nothing of itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


point = namedtuple("point", "x y")  # noqa: PYI024  # an untyped one is meant


@pytest.mark.parametrize(
    "value",
    [
        None, 1, 1.5, True, "text", b"text", [1, [2]], {"a": (1, "b")}, Login("ann", "x"), Odd(),
        [Odd()], {Odd: 1}, Colour.RED, point(1, 2), ValueError("x"), 2**90, {(1, 2): 3}, "\ud800",
        ["12345"], lambda: None, Struct("a"), range(3),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_without_secrets_is_the_same_object(value: Any) -> None:
    """Nothing is copied where there is nothing to mask."""
    assert MASK.value(value) is value


def test_what_holds_itself_can_be_masked() -> None:
    """A cycle is cut, as it is when it is written as JSON."""
    value: list[Any] = [KEY]
    value.append(value)
    assert MASK.value(value) == ["${API_KEY}", "..."]


def test_a_record_that_refuses_is_shown_as_data() -> None:
    """Where no object of the class can be made, its data are shown."""

    @dataclass
    class Stubborn:
        password: str

        def __copy__(self) -> Any:
            raise RuntimeError("there is only one")

    assert MASK.value(Stubborn(KEY)) == {"password": "${API_KEY}"}


@pytest.mark.parametrize(
    "event", [*sample_events(), *sample_progress()], ids=lambda event: type(event).__name__
)
def test_an_event_without_secrets_is_the_same_object(event: Any) -> None:
    """Of nearly all events no copy is made."""
    assert masked_event(MASK, event) is event


@given(st.data())
def test_an_event_is_shown_without_its_secrets(data: st.DataObject) -> None:
    """Every text of every event is masked but the words that handrail itself chose."""
    event = data.draw(st.sampled_from([*sample_events(), *sample_progress()]))
    texts = [
        name
        for name in type(event).__dataclass_fields__
        if isinstance(getattr(event, name), str) and name not in KEPT
    ]
    secret = VALUES["LONG_KEY"]
    marked = replace(event, **dict.fromkeys(texts, f"a {secret} b"))
    shown = masked_event(MASK, marked)
    assert type(shown) is type(event)
    assert replace(event, **dict.fromkeys(texts, "a ${LONG_KEY} b")) == shown


KEPT = {
    *("run_id", "step_type", "status", "kind", "error_type", "fingerprint", "digest", "composed"),
    *("stream", "direction", "decision", "phase", "on_error", "reason_", "backend", "action"),
}


def test_records_inside_of_events_are_masked() -> None:
    """Results, gates and launches keep their class; a result says that it was masked."""
    result = StepResult("a", "a", "python", "failed", [KEY], f"no {KEY}", traceback=KEY)
    shown: Any = masked_event(MASK, ev.StepCompleted("a", result)).result
    assert (shown.output, shown.error, shown.traceback, shown.masked) == (
        ["${API_KEY}"], "no ${API_KEY}", "${API_KEY}", True,
    )  # fmt: skip
    gate = OpenGate("go?", f"Use {KEY}?", (KEY, "no"), str, default=KEY)
    opened: Any = masked_event(MASK, ev.GateOpened("go?", gate))
    assert opened.gate == OpenGate(
        "go?", "Use ${API_KEY}?", ("${API_KEY}", "no"), str, default="${API_KEY}"
    )
    step = ev.LadderStep("a", 1, "refusal", KEY, Launch(2, reason=KEY, answer=KEY))
    assert masked_event(MASK, step).next == Launch(2, reason="${API_KEY}", answer="${API_KEY}")


def test_words_and_short_names_stay() -> None:
    """A variable whose value is a word of handrail's, or a short name, does not spoil an event."""
    odd = {"A_KEY": "succeeded", "B_KEY": "python", "C_KEY": "review", "D_KEY": "a-name-of-a-step"}
    mask = Mask(secret_values(Secrets(), odd))
    result = StepResult("review", "x/review", "python", "succeeded", "review of python")
    shown: Any = masked_event(mask, ev.StepCompleted("x/review", result)).result
    assert (shown.name, shown.path, shown.step_type, shown.status, shown.output) == (
        "review", "x/review", "python", "succeeded", "${C_KEY} of ${B_KEY}",
    )  # fmt: skip
    started = masked_event(mask, ev.StepStarted("x/a-name-of-a-step", "python"))
    assert started == ev.StepStarted("x/${D_KEY}", "python")
    assert masked_event(mask, ev.RunResumed(("x/a-name-of-a-step",))).superseded == ("x/${D_KEY}",)


def test_objects_of_other_classes_are_left_to_who_writes_them() -> None:
    """Only the text of an object may say a secret, and only who writes it needs that text."""
    error = ValueError(KEY)
    assert MASK.value([error, KEY]) == [error, "${API_KEY}"]


# -- texts that come in bits -----------------------------------------------------------------------

COLOURED = "\x1b[1;32msk-" + "a1B2c3" * 6
TEXTS = [
    f"Bearer {KEY} and {VALUES['LONG_KEY']}!",
    f"{VALUES['DB_PASSWORD']} {VALUES['DB_PASSWORD'][:-1]}x",
    f"hunter hunter2 {KEY[:-1]}",
    f"{KEY}-and-more-of-it er2!-and",
    f"use {TOKEN}, {TOKEN}{TOKEN}",
    "task-0123456789abcdefghijklmnop desk-1 risk",
    f"{COLOURED}\x1b[0m",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27 eyJ",
    "plain words, and no secret at all",
    f"AKIAIOSFODNN7EXAMPLE{KEY} AKIAIOSFODNN7EXAMPLEandmore",
]


def shown_in_bits(bits: list[str], mask: Mask = MASK) -> str:
    """What is shown of a text that comes so."""
    shown, rest, before = "", "", ""
    for bit in bits:
        now, rest, before = mask.split(rest + bit, before)
        shown += now
    return shown + mask.after(before, rest)


@pytest.mark.parametrize("text", TEXTS)
def test_no_cut_shows_a_secret(text: str) -> None:
    """Cut at any two places, or into characters, a text is shown as it is in one piece."""
    whole = MASK.text(text)
    assert shown_in_bits(list(text)) == whole
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1, 3):
            assert shown_in_bits([text[:first], text[first:second], text[second:]]) == whole


pieces = st.lists(
    st.sampled_from([*VALUES.values(), TOKEN, COLOURED, "sk-", "eyJ", " ", "\n", "h", "hunter2"])
    | st.text(max_size=3),
    max_size=8,
).map("".join)


@given(pieces, st.lists(st.integers(0, 200), max_size=6))
def test_any_text_is_shown_as_in_one_piece(text: str, cuts: list[int]) -> None:
    """Wherever a text is cut, what is shown of its pieces is what is shown of the whole."""
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    bits = [text[a:b] for a, b in pairwise(ends)]
    assert shown_in_bits(bits) == MASK.text(text)


def test_what_cannot_become_a_secret_is_shown_at_once() -> None:
    """Lines are not kept back."""
    assert MASK.split("all is well\n") == ("all is well\n", "", "")
    bare = Mask(secret_values(Secrets(), {}))
    assert bare.split("all is well") == ("all is well", "", " well")
    assert bare.split("so it is.") == ("so it is.", "", "t is.")


def test_little_is_kept_back() -> None:
    """No more than a value is long, or the longest token, waits for what comes next."""
    _, rest, _ = MASK.split("x" * 100 + VALUES["LONG_KEY"][:-1])
    assert rest == VALUES["LONG_KEY"][:-1]
    shown, rest, _ = Mask(secret_values(Secrets(), {})).split("eyJ" + "a" * LONGEST_TOKEN)
    assert (len(shown), rest) == (LONGEST_TOKEN + 3, "")


@pytest.mark.parametrize("piece", ["h", "sk-", "eyJ ", "hunter2"])
def test_no_text_takes_long_to_split(piece: str) -> None:
    """The time is not that of the text's square, which would be minutes."""
    text = piece * (200_000 // len(piece))
    shown, rest, _ = MASK.split(text)
    assert len(shown) + len(rest) <= len(text)
