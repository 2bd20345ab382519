"""The process's own outputs: stdout kept for data, lines for people on stderr, readers that go."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO


@contextmanager
def data_channel() -> Generator[TextIO]:
    """A stream to the real stdout, while file descriptor 1 leads to stderr.

    So what a workflow's own code prints, or a program it starts, does not get among the data.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", encoding="utf-8", closefd=False) as data:
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
    """Have what is written there from now on go nowhere, without an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def tell(text: str) -> None:
    """One line on stderr, if there is one that still takes it."""
    from handrail.cli.masking import mask_text

    try:
        print(f"handrail: {mask_text(text)}", file=sys.stderr, flush=True)
    except OSError:  # the terminal has gone
        return


def write_json(value: Any, data: TextIO) -> None:
    """Print JSON for other programs."""
    from handrail.cli.masking import mask_data

    json.dump(mask_data(value), data, ensure_ascii=False, indent=2, allow_nan=False)
    data.write("\n")
    data.flush()
