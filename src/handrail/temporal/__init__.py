"""Run the same workflows on a Temporal cluster, where any worker may take a step [temporalio]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.temporal.executor import TemporalExecutor as TemporalExecutor
    from handrail.temporal.worker import TemporalWorker as TemporalWorker
    from handrail.temporal.worker import replayer as replayer

_FROM = {
    "TemporalExecutor": "handrail.temporal.executor",
    "TemporalWorker": "handrail.temporal.worker",
    "replayer": "handrail.temporal.worker",
}
__all__ = ["TemporalExecutor", "TemporalWorker", "replayer"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for.

    Raises:
        MissingExtra: the cluster's library is not installed.
    """
    module = _FROM.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "temporalio":
            raise
        from handrail.errors import MissingExtra

        raise MissingExtra("handrail.temporal", "temporalio", "temporal") from None
