"""Claude Code, driven through its stream of JSON lines."""
