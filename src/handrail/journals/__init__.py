"""Journals: they keep the events of runs, in memory or in a file."""
