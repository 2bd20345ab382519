"""Coordination: who works on what, among runs, programs and people that share a repository."""
