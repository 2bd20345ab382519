"""The command, in the process of the test, for what an Orchestrator leaves behind."""

from __future__ import annotations

from tests.cli.conftest import cli, folder

__all__ = ["cli", "folder"]
