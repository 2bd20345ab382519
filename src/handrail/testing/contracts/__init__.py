"""The laws of each port as a pytest class: subclass it, and override its fixtures.

``HostContract`` and ``ChaosContract``, which bring a whole executor, are imported when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handrail.testing.contracts.backend import BackendContract
from handrail.testing.contracts.claims import ClaimsContract
from handrail.testing.contracts.clock import ClockContract
from handrail.testing.contracts.journal import JournalContract
from handrail.testing.contracts.sink import SinkContract

if TYPE_CHECKING:
    from handrail.testing.contracts.chaos import ChaosContract
    from handrail.testing.contracts.host import HostContract

__all__ = [
    "BackendContract",
    "ChaosContract",
    "ClaimsContract",
    "ClockContract",
    "HostContract",
    "JournalContract",
    "SinkContract",
]
_LAZY = {
    "ChaosContract": "handrail.testing.contracts.chaos",
    "HostContract": "handrail.testing.contracts.host",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
