"""Codex, driven through its app server."""
