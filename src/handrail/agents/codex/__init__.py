"""Codex, driven through its app server, or through `codex exec`."""
