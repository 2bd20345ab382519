"""Compares the page docs/reference/executor.md with the code, in the names of its blocks."""

import inspect
import re
from pathlib import Path

page = PAGE_FILE.read_text("utf-8")
block = page.split("executor = Executor(")[1].split("\n)\n")[0]
assert re.findall(r"^    (\w+)=", block, re.MULTILINE) == [
    name for name in inspect.signature(Executor).parameters
]

from dataclasses import fields

from handrail import Journal, Plan, PlannedStep, RunInfo

signature = re.search(r"`SqliteJournal\(path, (.*?)\)` \|", page)[1]
assert re.findall(r"(\w+)=", signature) == [
    name for name in inspect.signature(SqliteJournal).parameters if name != "path"
]
for kind in (RunInfo, Plan):
    (paragraph,) = re.findall(
        rf"^.*`{kind.__name__}`.* (?:has|each run)[^|]*?\n(?:\n|\Z)", page, re.MULTILINE
    )
    assert {field.name for field in fields(kind)} <= set(re.findall(r"`(\w+)`", paragraph)), kind
assert f"`PlannedStep({', '.join(field.name for field in fields(PlannedStep))})`" in page
assert all(hasattr(Journal, name) for name in ("runs", "events"))
for name in re.findall(r"^\| `([a-z]\w+)\(", page, re.MULTILINE):
    assert hasattr(executor, name)
    if name not in {
        "stream",
        "stream_resume",
        "options",
        "start",
        "get",
        "result",
        "follow",
        "serve",
    }:
        assert hasattr(executor, f"{name}_sync"), name
