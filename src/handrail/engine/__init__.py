"""The impure half: performs the commands of the core, and records what happened.

``engine.Engine`` begins a drive, which is a ``driver.Driver``: a conductor and its own host.
``driver.Driver._carry_out_in_order`` numbers each event, and has the journal write it.
``driver.Driver.read_messages`` takes answers, signals and steering. ``attempt_tasks`` starts an
attempt, ``perform`` performs it.
"""
