"""Lines are the same however their bytes were cut into pieces."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.system.live import Line, LineFramer

SMALL_LIMIT = 6
STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"{}", b"\xe2\x82\xac", b"\xff", b"abcdefg"])
).map(b"".join)


def framed(pieces: list[bytes], limit_bytes: int = SMALL_LIMIT) -> list[Line]:
    """All lines of a stream that came in these pieces."""
    framer = LineFramer("stdout", limit_bytes)
    lines = [line for piece in pieces for line in framer.feed(piece)]
    return lines + framer.finish()


def cut_up(data: bytes, places: list[int]) -> list[bytes]:
    """The same bytes in pieces, cut at these places."""
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(STREAMS, st.lists(st.integers(min_value=0)))
def test_any_pieces_of_a_stream_give_its_lines(data: bytes, places: list[int]) -> None:
    """Lines are what is between newlines, up to the limit, wherever the stream was cut."""
    raw = data.split(b"\n")
    expected = [
        Line("stdout", line[:SMALL_LIMIT], cut=True)
        if len(line) > SMALL_LIMIT
        else Line("stdout", line.removesuffix(b"\r"))
        for line in (raw if raw[-1] else raw[:-1])
    ]
    assert framed(cut_up(data, places)) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\nlast", [b"a", b"last"]),
    ],
)
def test_what_a_line_is(data: bytes, expected: list[bytes]) -> None:
    """A newline ends a line, with or without a carriage return; the end of the stream does too."""
    assert [line.data for line in framed([data])] == expected


def test_a_line_that_is_too_long_does_not_spoil_the_next() -> None:
    """Its beginning is kept and marked, its rest is dropped, and the next line is whole."""
    assert framed([b"0123456789", b"0123\nnext\n"]) == [
        Line("stdout", b"012345", cut=True),
        Line("stdout", b"next"),
    ]


def test_a_long_line_in_many_pieces_costs_no_more_than_its_length() -> None:
    """Sixteen times the pieces take less than 128 times as long, where squares take 256."""
    piece = b"x" * 1024

    def seconds(count: int) -> float:
        started = time.process_time()
        (line,) = framed([piece] * count, limit_bytes=64 << 20)
        assert len(line.data) == count * len(piece)
        return time.process_time() - started

    short = min(seconds(1_000) for _ in range(3))
    assert min(seconds(16_000) for _ in range(3)) < 128 * short
