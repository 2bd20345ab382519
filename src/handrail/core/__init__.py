"""The decisions of a run: ``machine`` receives what happened and returns commands.

``attempts.attempt`` begins an attempt. ``retry.attempt_failed`` decides whether another follows; if
none does, ``failing`` decides what happens instead. ``launches`` makes the launches of agents:
``budget.reserve`` sets their cost aside, ``ladder.next_launch`` decides after a failure which one
follows and in which session, and ``launches.resume_launches`` continues a session after an
interruption. ``waits.gate_answered`` ends a question, ``waits.timer_fired`` a wait for a time. The
data is in ``run_state`` and ``nodes``.
"""
