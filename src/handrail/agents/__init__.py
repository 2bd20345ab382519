"""Agents, and the backends that carry them out, one a file."""
