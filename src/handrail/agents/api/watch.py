"""How long a model may be silent, and take in all."""

from __future__ import annotations

import anyio

from handrail.model.agent_options import AgentOptions

IDLE_S = 600.0
"""How long a model may take to the next sign of life. Providers hide what it thinks, so silence of
minutes is no hang; 600 s is also what their clients wait for a reply by default."""
TOOL_S = 1800.0


class Watch:
    """Ends a turn in which nothing is heard of the model for too long. Mutable."""

    def __init__(self, options: AgentOptions) -> None:
        self._idle_s = options.idle_timeout_s or IDLE_S
        self._start_s = options.start_timeout_s or self._idle_s
        self._tool_s = options.tool_timeout_s or TOOL_S
        self._total_s = options.timeout_s
        self._waiting_s = self._start_s
        self.silence = anyio.CancelScope()
        self.total = anyio.move_on_after(options.timeout_s)

    def start(self) -> None:
        """A request is about to be sent."""
        self._wait(self._start_s)

    def sign(self) -> None:
        """Something was heard."""
        self._wait(self._idle_s)

    def tools(self) -> None:
        """The model has answered; what it called is at work."""
        self._wait(self._tool_s)

    def _wait(self, seconds: float) -> None:
        self._waiting_s = seconds
        self.silence.deadline = anyio.current_time() + seconds

    @property
    def reason(self) -> str:
        """Why the turn was ended."""
        if self.total.cancelled_caught and self._total_s is not None:
            return f"it took longer than {self._total_s:g} s"
        return f"nothing was heard of it for {self._waiting_s:g} s"
