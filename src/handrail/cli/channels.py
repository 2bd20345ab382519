"""The process's outputs: data on stdout, lines for people on stderr, readers that disappear."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TextIO

from handrail.shortening import for_terminal, without_codes


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
def cleaned_outputs() -> Generator[None]:
    """Have all that is printed meanwhile go through ``for_terminal``: the last place on its way."""
    streams = [one for one in (sys.stdout, sys.stderr) if hasattr(one, "__dict__")]
    for stream in streams:
        stream.write = _cleaned(stream.write)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for stream in streams:
            vars(stream).pop("write", None)  # of an inner call that had the same stream, it is gone


def _cleaned(write: Callable[[str], int]) -> Callable[[str], int]:
    return lambda text: write(for_terminal(text))


def log_on_stderr() -> None:
    """Have structlog print on stderr, unless the run's code says how to log: stdout is its own.

    It is not imported for that, which would take a fifth of the time in which a command starts.
    """
    if "structlog" in sys.modules:
        _configure(sys.modules["structlog"])
    elif not any(isinstance(one, _AtImport) for one in sys.meta_path):
        sys.meta_path.insert(0, _AtImport())


class _AtImport:
    """Has structlog configured once something imports it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where structlog is, with a loader that configures it; None for all else."""
        del path, target
        if fullname != "structlog":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        assert spec is not None  # handrail requires it
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _configure(module)

        loader.exec_module = exec_module
        return spec


def _configure(structlog: Any) -> None:
    def logger(*_: object) -> Any:
        return structlog.PrintLogger(sys.stderr)

    if not structlog.is_configured():
        structlog.configure(logger_factory=logger)


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

    json.dump(mask_data(value), data, ensure_ascii=data.isatty(), indent=2, allow_nan=False)
    data.write("\n")
    data.flush()
