"""Typed values as JSON text, and back: no pickle, and nothing is imported to read one."""
