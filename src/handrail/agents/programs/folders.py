"""The folders that an agent's program works in, as absolute paths."""

from __future__ import annotations

from pathlib import Path

from handrail.model.agent_options import AgentOptions


def working_folder(options: AgentOptions) -> str:
    """The working folder of the options, else this process's."""
    return str(Path(options.cwd or ".").absolute())


def added_folders(options: AgentOptions) -> list[str]:
    """The folders of ``add_dirs``; where they are relative, that is to the working folder."""
    return [str(Path(working_folder(options), one)) for one in options.add_dirs or ()]
