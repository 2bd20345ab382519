"""Compares the page docs/reference/errors.md with the code, in the names of its blocks."""

import re
from pathlib import Path

import handrail

page = PAGE_FILE.read_text("utf-8")
named = {name for name in re.findall(r"`([A-Z]\w+)`", page) if hasattr(handrail, name)}
errors = {
    name
    for name in handrail.__all__
    if isinstance(getattr(handrail, name), type)
    and issubclass(getattr(handrail, name), BaseException)
}
assert errors == named, errors ^ named
