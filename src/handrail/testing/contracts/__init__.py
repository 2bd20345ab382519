"""The laws of each port as a pytest class: subclass it, and give it what you made.

``HostContract``, which brings a whole executor, is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handrail.testing.contracts.backend import BackendContract
from handrail.testing.contracts.clock import ClockContract
from handrail.testing.contracts.journal import JournalContract
from handrail.testing.contracts.sink import SinkContract

if TYPE_CHECKING:
    from handrail.testing.contracts.host import HostContract

__all__ = ["BackendContract", "ClockContract", "HostContract", "JournalContract", "SinkContract"]


def __getattr__(name: str) -> Any:
    if name != "HostContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from handrail.testing.contracts.host import HostContract

    return HostContract
