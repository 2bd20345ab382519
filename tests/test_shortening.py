"""Texts that are cut before they are masked hold no piece of a secret."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.api.errors import diagnose
from handrail.agents.command import KEPT_BYTES, CommandParser
from handrail.agents.launch import Digest
from handrail.agents.prompt import both_ends
from handrail.agents.transport.parser import Ending, stderr_reason
from handrail.agents.transport.turn import Patience
from handrail.codec.codec import difference
from handrail.core.mistakes import not_a_step
from handrail.errors import AgentError, CommandFailed, DefinitionError, ValidationFailed
from handrail.model.events import AgentMessage
from handrail.model.results import StageResult, ValidationResult, ValidationRoundResult
from handrail.ports.agent import AgentTurn
from handrail.secrets.values import mask_text
from handrail.shortening import LONGEST_WORD, shortened
from handrail.system.run import Capture, Tail
from handrail.system.spawn import checked
from handrail.typed.extract import NoAnswer, last_fitting
from handrail.typed.jsonsafe import short_repr

End = Literal["head", "tail"]
ENDS = st.sampled_from(["head", "tail"])
SECRET = "Zq7Wx9Kv3-Rt5Np1=Mb8Lc2Hd4"
AROUND = st.text("abc \n\"'`.,=é😀", max_size=120)


def pieces(secret: str, text: str) -> list[str]:
    """What of a secret can be read in a text without what is masked, five characters at a time."""
    shown = mask_text(text, {"API_KEY": secret})
    parts = {secret[start : start + 5] for start in range(len(secret) - 4)}
    return sorted(part for part in parts if part in shown)


@given(
    AROUND,
    st.text("0123456789XYZ-_/+=$", min_size=6, max_size=200),
    AROUND,
    st.integers(-20, 220),
    ENDS,
)
def test_a_secret_is_whole_or_absent(
    before: str, secret: str, after: str, place: int, keep: End
) -> None:
    """Wherever it stands in a text, and wherever that is cut, masking leaves nothing of it."""
    characters = max(0, place + len(before if keep == "head" else after))
    kept = shortened(f"{before}{secret}{after}", characters, keep, mark=" ... ")
    assert pieces(secret, kept) == []


@pytest.mark.parametrize(
    "token",
    ["ghp_" + "a1B2" * 9, "sk-proj-" + "x9Y8" * 10, f"eyJ{'h' * 20}.eyJ{'p' * 60}.{'s' * 43}"],
    ids=["ghp", "sk", "jwt"],
)
@pytest.mark.parametrize("keep", ["head", "tail"])
def test_a_token_is_whole_or_absent(token: str, keep: End) -> None:
    """At no cut more is left of a token than is shown of it anyway: its first and last 4."""
    text = f"Bearer {token} was refused"
    for characters in range(len(text)):
        shown = mask_text(shortened(text, characters, keep), {})
        assert not any(token[at : at + 5] in shown for at in range(len(token) - 4))


@given(AROUND, st.integers(0, 130), ENDS)
def test_what_is_kept_is_an_end_of_the_text(text: str, characters: int, keep: End) -> None:
    """It is the whole text if that fits, and else as much as can be kept without half a word."""
    kept = shortened(text, characters, keep, mark="")
    if len(text) <= characters:
        assert kept == text
        return
    assert text.startswith(kept) if keep == "head" else text.endswith(kept)
    cut = characters if keep == "head" else len(text) - characters
    at = len(kept) if keep == "head" else len(text) - len(kept)
    if is_in_word(text, cut):
        assert not is_in_word(text, at)
        assert all(is_in_word(text, place) for place in range(min(at, cut) + 1, max(at, cut)))
    else:
        assert at == cut


def is_in_word(text: str, at: int) -> bool:
    """True if a cut there would leave pieces of a word."""
    beside = text[max(0, at - 1) : at + 1]
    return 0 < at < len(text) and not any(character in " \n\"'`" for character in beside)


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_a_longer_word_is_cut_like_any_text(keep: End) -> None:
    """Of base64 as much is shown as was asked for."""
    data = "QUJD" * 1_000
    assert len(shortened(data, 300, keep, mark="")) == 300
    assert len(shortened(f"got '{data}' ", 700, keep, mark="")) == 700
    assert shortened("w" * LONGEST_WORD, 300, keep) == "..."
    assert shortened("w" * (LONGEST_WORD + 1), 300, keep, mark="") == "w" * 300


# -- everything that cuts --------------------------------------------------------------------------

TURN = AgentTurn("worker", "Do it.", uuid.uuid4().hex, "step")


def command_failed(text: str) -> str:
    """The error of a command."""
    return str(CommandFailed("'x'", 1, "", text))


def validation_failed(text: str) -> str:
    """The error of a validation."""
    stage = StageResult("s", passed=False, error=text)
    failed = ValidationResult(passed=False, rounds=(ValidationRoundResult(1, (stage,)),))
    return str(ValidationFailed("step", failed))


def program_failed(text: str) -> str:
    """The error of any program that is an agent, and what it keeps of its answer."""
    parser = CommandParser(TURN, "program", Patience())
    list(parser.feed(text.encode()))
    with pytest.raises(AgentError) as caught:
        parser.conclude(Ending(1, stderr=text))
    return f"{caught.value} {caught.value.text}"


def digested(text: str) -> str:
    """What is kept of messages that came in bits."""
    digest = Digest(lambda _: None, 1)
    for start in range(0, len(text), 7):
        digest(AgentMessage("step", text[start : start + 7]))
    return digest.text()


def captured(text: str) -> str:
    """What is kept of a program's output."""
    capture = Capture(300)
    capture.feed(text.encode())
    return capture.text()[0]


def end_of_stderr(text: str) -> str:
    """What is kept of the stderr of a program that is listened to."""
    tail = Tail(300)
    for start in range(0, len(text), 7):
        tail.feed(text[start : start + 7].encode())
    return tail.text()


def not_spawned(text: str) -> str:
    """The error of a command that cannot be passed on."""
    with pytest.raises(DefinitionError) as caught:
        checked(["x", text, "\0"], cwd=None, env={}, has_stdin=False)
    return str(caught.value)


def not_found(text: str) -> str:
    """Why an answer is malformed JSON."""
    reasons: list[str] = []
    for answer in (f'{{"a": "{text}", oops', f'{{"a": oops, {text}', f'{{"a": 12 {text}'):
        found = last_fitting(answer, dict[str, str])
        assert isinstance(found, NoAnswer)
        reasons.append(found.reason)
    return "; ".join(reasons)


CUTTERS: dict[str, tuple[Callable[[str], Any], int]] = {
    "CommandFailed": (command_failed, 2_000),
    "ValidationFailed": (validation_failed, 300),
    "any program": (program_failed, 2_000),
    "digest": (digested, 280),
    "capture": (captured, 150),
    "tail": (end_of_stderr, 300),
    "spawn": (not_spawned, 80),
    "malformed JSON": (not_found, 30),
    "stderr of an agent": (lambda text: stderr_reason(Ending(1, stderr=text)), 300),
    "model API": (lambda text: diagnose(RuntimeError(text)).reason, 600),
    "both ends": (lambda text: both_ends(text, 1_000), 500),
    "repr": (lambda text: short_repr([text]), 80),
    "no step": (lambda text: not_a_step([text], "here"), 80),
    "codec": (lambda text: difference([text], [1]), 80),
}


@pytest.mark.parametrize(("cut", "kept"), CUTTERS.values(), ids=CUTTERS)
@pytest.mark.parametrize("is_glued", [False, True])
def test_no_piece_of_a_secret_is_left_by_any_cut(
    cut: Callable[[str], Any], kept: int, is_glued: bool
) -> None:
    """With a secret at any place near where it cuts, the masked text has nothing of it."""
    words = "it said so " * (kept // 5 + 20)
    word = f"key={SECRET};" if is_glued else SECRET
    places = range(max(0, kept - 60), kept + 20, 3)
    texts = [f"{words[:place]} {word} {words}" for place in places]
    texts += [f"{words} {word} {words[:place]}." for place in places]
    for text in texts:
        assert pieces(SECRET, str(cut(text))) == []


def test_no_piece_of_a_secret_is_left_of_an_answer_that_is_too_long() -> None:
    """Its end is kept as bytes first, of characters of four bytes too."""
    parser = CommandParser(TURN, "program", Patience())
    list(parser.feed(b"1\n" * (KEPT_BYTES // 2)))
    for count in range(960, 1_000, 2):
        list(parser.feed(f" {SECRET} {'🐎 ' * count}".encode()))
        with pytest.raises(AgentError) as caught:
            parser.conclude(Ending(0))
        assert pieces(SECRET, caught.value.text) == []


def test_a_number_with_letters_is_not_quoted_in_half() -> None:
    """Where JSON breaks off within a word, that word is whole in the reason."""
    secret = "12Wx9Kv3Rt"
    found = last_fitting(f'{{"a": {secret}}}', dict[str, str])
    assert isinstance(found, NoAnswer)
    assert f"{secret}}}' follows after" in found.reason
