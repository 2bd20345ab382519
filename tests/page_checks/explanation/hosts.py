"""Compares the page docs/explanation/hosts.md with the code, in the names of its blocks."""

import re
from pathlib import Path

from handrail.core.conductor import Host

page = PAGE_FILE.read_text("utf-8")
named = set(re.findall(r"^\| `(\w+)\(", page, re.MULTILINE))
assert named == {name for name in vars(Host) if not name.startswith("_")}, named
