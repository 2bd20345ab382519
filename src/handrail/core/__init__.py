"""The decisions of a run: ``machine`` receives what happened and returns commands.

``attempts.attempt`` begins an attempt. ``retry.attempt_failed`` decides whether another follows; if
none does, ``failing`` decides what happens instead. ``launches`` makes the launches of agents, with
``ladder`` and ``budget.reserve``. ``waits`` ends a wait for an answer, a signal or a time. The data
is in ``run_state`` and ``nodes``.
"""
