"""A capture keeps a bounded beginning and end, and accounts for every byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import DefinitionError
from handrail.shortening import shortened
from handrail.system.run import Capture, Tail

CHUNKS = st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), max_size=20)
NOTICE = re.compile(r"\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n")


def captured(chunks: list[bytes], limit_bytes: int) -> tuple[str, int]:
    """What a capture makes of these chunks."""
    capture = Capture(limit_bytes)
    for chunk in chunks:
        capture.feed(chunk)
    return capture.text()


@given(CHUNKS)
def test_output_within_the_limit_is_kept_whole(chunks: list[bytes]) -> None:
    """As many bytes as the limit come back as they were, and none counts as left out."""
    whole = b"".join(chunks)
    assert captured(chunks, len(whole)) == (whole.decode("utf-8", "replace"), 0)


@given(st.lists(st.sampled_from([b"a", b"bc", b"defgh", b" ", b"\n"])), st.integers(0, 40))
def test_beyond_the_limit_exactly_the_middle_is_left_out(chunks: list[bytes], limit: int) -> None:
    """One-byte characters beyond the limit leave the whole words of its halves, and a count."""
    whole = b"".join(chunks).decode()
    text, left_out = captured(chunks, limit)
    if len(whole) <= limit:
        assert (text, left_out) == (whole, 0)
    else:
        first = shortened(whole, limit - limit // 2, mark="")
        last = shortened(whole, limit // 2, keep="tail", mark="")
        count = len(whole) - len(first) - len(last)
        notice = f"\n[... {count} bytes left out ...]\n"
        assert (text, left_out) == (first + notice + last, count)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 40))
def test_no_character_is_cut_in_two(text: str, limit_bytes: int) -> None:
    """What is kept of valid text is a beginning and an end of it, and the count is of the rest."""
    data = text.encode()
    kept, left_out = captured([data], limit_bytes)
    if left_out == 0:
        assert kept == text
        return
    notice = f"\n[... {left_out} bytes left out ...]\n"
    splits = [m.start() for m in re.finditer(re.escape(notice), kept)]
    parts = [(kept[:at], kept[at + len(notice) :]) for at in splits]
    assert any(
        text.startswith(head)
        and text.endswith(tail)
        and len(head.encode()) + len(tail.encode()) + left_out == len(data)
        for head, tail in parts
    )


@given(st.lists(st.text("ab é\n", max_size=9)), st.integers(0, 40))
def test_a_tail_is_the_end_of_what_it_was_fed(chunks: list[str], limit_bytes: int) -> None:
    """All of it within the limit, else whole words."""
    tail = Tail(limit_bytes)
    for chunk in chunks:
        tail.feed(chunk.encode())
    whole = "".join(chunks)
    bytes_as_text = whole.encode().decode("latin-1")
    expected = shortened(bytes_as_text, limit_bytes, keep="tail", mark="")
    assert tail.text() == expected.encode("latin-1").decode()


@given(CHUNKS, st.integers(0, 60))
def test_the_way_it_was_cut_into_chunks_does_not_show(chunks: list[bytes], limit: int) -> None:
    """The same bytes in one chunk or in many are captured alike."""
    assert captured(chunks, limit) == captured([b"".join(chunks)], limit)


def test_bytes_that_are_no_utf8_are_accounted_for_too() -> None:
    """Continuation bytes without a beginning are left out at the cut, three at most."""
    text, left_out = captured([b"\x80" * 1_000], 20)
    assert (NOTICE.split(text), left_out) == (["\ufffd" * 10, "983", "\ufffd" * 7], 983)


def test_a_negative_limit_is_refused() -> None:
    """The error says which value was given."""
    with pytest.raises(DefinitionError, match=r"limit_bytes must be 0 or more, got -1"):
        Capture(-1)
