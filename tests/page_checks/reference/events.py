"""Compares the page docs/reference/events.md with the code, in the names of its blocks."""

import dataclasses
import re
import typing
from pathlib import Path

from handrail.model import events

page = PAGE_FILE.read_text("utf-8")
rows = {
    name: re.findall(r"\w+", cell)
    for name, cell in re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
}
without = set(re.findall(r"`([A-Z]\w+)`", page.split("; only ")[1].split(" have no")[0]))
for cls in (*typing.get_args(events.Event), *typing.get_args(events.Progress)):
    own = [field.name for field in dataclasses.fields(cls)]
    assert rows.pop(cls.__name__) == [
        name for name in own if name not in {"run_id", "seq", "at", "path"}
    ], cls
    assert ("path" in own) != (cls.__name__ in without), cls
assert not rows, rows
