"""``handrail trust``: code of another user, or of a project whose journal is elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from handrail.cli.channels import tell
from handrail.cli.exits import Exit
from handrail.cli.target import load_executor
from handrail.cli.trusted import note_journal, note_trust
from handrail.cli.who import refuse_in_step
from handrail.project import project_table


def trust(folder: Path | None = None, /) -> int:
    """Let commands in this folder, or another one, run the code that its files name.

    That is needed once for a project whose files belong to another user, and for one with
    `executor` in [tool.handrail] whose journal is elsewhere, before its runs can be shown.
    """
    refuse_in_step("trust")
    start = (folder or Path()).resolve()
    table = project_table(start)
    root = note_trust(table, start)
    if "executor" in table:
        os.chdir(root)
        note_journal(table, load_executor(table["executor"]))
    tell(f"code of {root} is trusted from now on")
    return Exit.SUCCEEDED
