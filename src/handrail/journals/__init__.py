"""Journals: where the events of runs are kept. One journal a file."""
