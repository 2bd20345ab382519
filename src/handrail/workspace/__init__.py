"""Keeps an agent to the files that it may write, or to a working tree of its own."""
