"""Closing of generators."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any


def close(generator: Generator[Any, Any, Any]) -> BaseException | None:
    """Close a generator; what it raises meanwhile, a refusal to close included."""
    try:
        generator.close()
    except BaseException as error:  # noqa: BLE001  # a body's finally may raise anything
        return error
    return None
