"""Coordination: who works on what, among runs, programs and people sharing a repository."""
