"""Compares the page docs/reference/command-line.md with the code, in the names of its blocks."""

import contextlib
import io
import os
import re
from pathlib import Path
from typing import get_args
from unittest import mock

from handrail.cli import main
from handrail.record.status import ShownStatus

PAGE = PAGE_FILE.read_text("utf-8")

states = {name for arg in get_args(ShownStatus) for name in get_args(arg) or [arg]}
rows = re.findall(r"^\| (`.*?`) \|", PAGE.split("| a run is |")[1].split("\n\n")[0], re.MULTILINE)
assert set(re.findall(r"\w+", " ".join(rows))) == states


def helps(*arguments):
    around = mock.patch.dict(os.environ, NO_COLOR="1", COLUMNS="200")
    with around, contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*arguments, "--help"]) == 0
    return out.getvalue()


commands = re.findall(
    r"^\| `(\w+)[ `]", PAGE.split("## Exit")[0].split("## The project")[0], re.MULTILINE
)
listed = re.findall(r"^│ (\w+) ", helps(), re.MULTILINE)
assert sorted(commands) == sorted(listed), (commands, listed)
options = set()
for command in [*listed, "temporal dev"]:
    options |= set(
        re.findall(r"^│ (?:\*  )?[A-Z]* *(--[a-z][a-z-]*)", helps(*command.split()), re.MULTILINE)
    )
named = set(re.findall(r"(--[a-z][a-z-]*)", PAGE.split("| option |")[1].split("## Runs")[0]))
assert named == options | {"--debug", "--version", "--help"}, (named, options)
codes = set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))
assert codes == set(
    re.findall(r"\b(\d{1,3}) [a-z]", helps().split("Exit codes:")[1].split("--debug")[0])
), codes
