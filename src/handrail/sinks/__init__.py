"""Sinks: what can be shown the events of a run. One sink a file; import it from its own module."""
