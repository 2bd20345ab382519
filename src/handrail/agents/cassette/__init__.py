"""Recordings of agents, played in their place: answers, notices, and changes to files."""
