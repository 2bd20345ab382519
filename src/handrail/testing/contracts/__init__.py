"""The laws of each port as a pytest class: subclass it, and give it what you made."""

from __future__ import annotations

from handrail.testing.contracts.backend import BackendContract
from handrail.testing.contracts.claims import ClaimsContract
from handrail.testing.contracts.clock import ClockContract
from handrail.testing.contracts.journal import JournalContract
from handrail.testing.contracts.sink import SinkContract

__all__ = ["BackendContract", "ClaimsContract", "ClockContract", "JournalContract", "SinkContract"]
