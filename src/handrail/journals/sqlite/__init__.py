"""A journal in one SQLite file: safe to kill at any instant, read by others while it is written."""
