"""Secrets: which values are secret, and texts, records and events without them."""
