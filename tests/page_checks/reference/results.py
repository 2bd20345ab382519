"""Compares the page docs/reference/results.md with the code, in the names of its blocks."""

import dataclasses
import re
from pathlib import Path

import handrail

PAGE = PAGE_FILE.read_text("utf-8")


def documented(name):
    """The fields and properties in the table under a heading."""
    section = re.split(r"^## ", PAGE.split(f"\n## `{name}`", 1)[1], flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}


def fields(cls):
    return {field.name for field in dataclasses.fields(cls)}


extra = {
    "WorkflowResult": {"success"},
    "StepResult": {"success"},
    "ValidationResult": {"stages", "failed"},
    "Work": {"values"},
}
extra |= {"TaskDone": {"id"}, "TaskFailed": {"id", "error", "error_type"}, "TaskRefused": {"id"}}
for name in re.findall(r"^## `(\w+)`", PAGE, re.MULTILINE):
    kind = getattr(handrail, name)
    wanted = (
        fields(kind) | extra.get(name, set())
        if dataclasses.is_dataclass(kind)
        else set(kind.__slots__)
    )
    assert documented(name) == wanted, (name, documented(name) ^ wanted)
