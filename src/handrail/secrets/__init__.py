"""Secrets: which values are one, and texts, records and events without them."""
