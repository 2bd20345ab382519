"""Reads workflows' source without running it: outlines, charts, checks."""
