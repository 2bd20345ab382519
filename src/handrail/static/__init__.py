"""What people type, and what can be read from it without running it."""
