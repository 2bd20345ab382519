"""What a driver is given."""

from __future__ import annotations

import attrs

from handrail.core.admission import Admission
from handrail.engine.bus import Bus
from handrail.engine.evaluate import Evaluator
from handrail.engine.perform import Performer
from handrail.ports.clock import Clock
from handrail.ports.journal import Journal


@attrs.frozen
class Wiring:
    """What a driver is given; every part is a port or a value."""

    journal: Journal
    bus: Bus
    clock: Clock
    performer: Performer
    evaluator: Evaluator
    admission: Admission
    handles_gates: bool
    linger_s: float
    suspend_timers_after_s: float | None
