"""The pure interpreter: events in, commands out. No clock, no await, no files."""
