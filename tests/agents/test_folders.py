"""The folders that a program is told of, and the files that it reads what it is told from."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.agents.transport.cli import added_folders, private_files, working_folder
from handrail.model.agent_options import AgentOptions


def test_folders_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder is this process's or relative to it, further ones to the working folder."""
    monkeypatch.chdir(tmp_path)
    options = AgentOptions(cwd="work", add_dirs=("more", "/srv/data"))
    assert working_folder(AgentOptions()) == str(tmp_path)
    assert working_folder(options) == str(tmp_path / "work")
    assert added_folders(options) == [str(tmp_path / "work" / "more"), "/srv/data"]
    assert added_folders(AgentOptions()) == []


def test_private_files_live_as_long_as_the_block() -> None:
    """They are in one folder that only the user may look into, and that is gone afterwards."""
    with private_files("agent") as put:
        first, second = Path(put("a.md", "naïve")), Path(put("b.md", "half \ud83d"))
        assert first.read_text("utf-8") == "naïve"
        assert second.read_text("utf-8") == "half ?"
        assert first.parent == second.parent
        assert first.parent.stat().st_mode & 0o077 == 0
    assert not first.parent.exists()
