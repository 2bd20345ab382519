"""The impure half: performs the commands of the core, and records what happened.

``engine.Engine`` begins a drive, which is a ``driver.Driver``: the host of a conductor.
``driver.Driver.drive`` has the conductor do what follows from what comes in.
``driver.Driver.read_messages`` takes answers, signals and steering. ``attempt_tasks`` starts an
attempt, ``perform`` performs it.
"""
