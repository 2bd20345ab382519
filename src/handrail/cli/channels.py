"""The process's outputs: data on stdout, lines for people on stderr, readers that disappear."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

from handrail.shortening import without_codes


@contextmanager
def data_channel() -> Generator[TextIO]:
    """A stream to the real stdout, while file descriptor 1 leads to stderr.

    So output of a workflow's own code, or of a program that it starts, does not mix with the data.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", -1, "utf-8", "backslashreplace", closefd=False) as data:
            yield data
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def json_channel(*, wanted: bool) -> Generator[TextIO | None]:
    """``data_channel`` if JSON is wanted, else None and nothing is redirected."""
    if wanted:
        with data_channel() as data:
            yield data
    else:
        yield None


def silence(descriptor: int) -> None:
    """Discard all that is written to the descriptor from now on, without an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def tell(text: str) -> None:
    """Print a text on stderr, without terminal codes in it, if it can still be written."""
    from handrail.cli.masking import mask_text

    try:
        print(f"handrail: {without_codes(mask_text(text))}", file=sys.stderr, flush=True)
    except OSError:  # the terminal has gone
        return


def write_json(value: Any, data: TextIO) -> None:
    """Print JSON for other programs."""
    from handrail.cli.masking import mask_data

    json.dump(mask_data(value), data, ensure_ascii=False, indent=2, allow_nan=False)
    data.write("\n")
    data.flush()
