"""The Gemini CLI, by its own stream of events."""
