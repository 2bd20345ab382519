"""Runs in a browser: what a page or a report is told of them, as JSON, and the report itself."""
