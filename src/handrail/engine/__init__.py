"""The impure arc: it performs what the core asks for, and writes down what happened.

``engine.Engine`` begins a drive, which is a ``driver.Driver``. ``driver.Driver._carry_out``
numbers each event, and has the journal write it. ``driver.Driver.read_messages`` takes answers,
signals and steering. ``attempt_tasks`` begins an attempt, ``perform`` makes it.
"""
