"""Recordings of agents, replayed in their place: answers, notices, and changes to files."""
