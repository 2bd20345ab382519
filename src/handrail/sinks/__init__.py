"""Sinks, which receive the events of a run. One sink per file; import each from its own module."""
