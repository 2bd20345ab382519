"""A run's record: read, folded by path, and written as rows."""
