"""The command, in the process of the test, for what an Orchestrator leaves behind."""

from __future__ import annotations

from tests.cli.conftest import cli as cli
from tests.cli.conftest import folder as folder
