"""``handrail skill``: what it teaches works as it is written, and it goes where agents look."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli.skill import NAME, PACKAGE, marked
from tests.cli.conftest import Cli

TEXT = (PACKAGE / "skill" / NAME).read_text("utf-8")
HERE = Path(".claude", "skills", "handrail", NAME)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_each_block_of_the_skill_works_in_its_order(tmp_path: Path) -> None:
    """Each file is written as it stands, and each line that is typed ends with exit code 0."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    typed: list[str] = []
    for language, block in BLOCK.findall(TEXT):
        first = block.partition("\n")[0]
        if language == "python":
            (tmp_path / first.removeprefix("# ")).write_text(block, "utf-8")
            continue
        assert language == "console"
        for line in block.splitlines():
            command = line.removeprefix("$ ")
            typed.append(command)
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert "warning" not in done.stdout + done.stderr, (command, done.stderr)
    assert "yes, Ann" in done.stdout
    assert len(typed) == 9


def test_the_commands_pages_and_options_that_it_names_are_there(cli: Cli) -> None:
    """Each `handrail` command has its options, and each page is in the folder that is printed."""
    docs = Path(cli("skill", "--docs").out.strip())
    pages = set(re.findall(r"`((?:how-to|reference|explanation)?/?[\w-]+\.md)`", TEXT))
    assert len(pages) > 8
    assert [page for page in pages if not (docs / page).is_file()] == []
    for command, rest in re.findall(r"`handrail (\w+)([^`]*)`", TEXT):
        helps = cli(command, "--help").out
        assert all(option in helps for option in re.findall(r"--[a-z-]+", rest)), command


def test_its_head_is_what_programs_read() -> None:
    """A name, and a description that says when it is of use, within the limits of programs."""
    head = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n", TEXT)
    assert head is not None
    assert head[1] == "handrail"
    assert "Use when" in head[2]
    assert len(head[2]) <= 1024


def test_it_goes_where_claude_looks_and_says_so(cli: Cli, folder: Path) -> None:
    """Without DIR in `.claude/skills/handrail`, else in DIR."""
    assert cli("skill").out == f"wrote {HERE}\n"
    assert (folder / HERE).read_text("utf-8") == marked(TEXT)
    assert cli("skill", "elsewhere/x").out == f"wrote {Path('elsewhere', 'x', NAME)}\n"


@pytest.mark.parametrize(
    ("there", "is_kept"),
    [
        pytest.param(marked(TEXT), False, id="as written"),
        pytest.param(marked("what another version said"), False, id="of another version"),
        pytest.param(marked(TEXT).replace("workflow", "flow", 1), True, id="edited"),
        pytest.param(f"{marked(TEXT)}More.\n", True, id="added to"),
        pytest.param("mine", True, id="of somebody else"),
    ],
)
def test_what_somebody_wrote_is_kept_unless_forced(
    there: str, is_kept: bool, cli: Cli, folder: Path
) -> None:
    """What handrail wrote is brought up to date; what was edited is refused, and names --force."""
    (folder / HERE).parent.mkdir(parents=True)
    (folder / HERE).write_text(there, "utf-8")
    done = cli("skill")
    if is_kept:
        assert done.code == 2
        assert "--force" in done.err
        assert (folder / HERE).read_text("utf-8") == there
        assert cli("skill", "--force").code == 0
    assert (folder / HERE).read_text("utf-8") == marked(TEXT)
