"""opencode, by its own stream of events."""
