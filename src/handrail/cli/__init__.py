"""The command ``handrail``."""

from __future__ import annotations

from handrail.cli.entry import main

__all__ = ["main"]
