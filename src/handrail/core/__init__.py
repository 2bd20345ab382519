"""What decides: ``machine`` is told what happened, and answers with what to do.

An attempt begins in ``attempts.attempt``. ``retry.attempt_failed`` decides whether another follows,
``failing`` what follows where none does. ``launches`` is for those of agents, with ``ladder`` and
``budget.reserve``. An answer, a signal or a time ends a wait in ``waits``. The data is in
``run_state`` and ``nodes``.
"""
