"""Agents, and the backends that carry them out, one backend a file or package."""
