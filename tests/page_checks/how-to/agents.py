"""Compares the page docs/how-to/agents.md with the code, in the names of its blocks."""

import re
from pathlib import Path

from handrail.agents.routes import backend_names, make_backend

PAGE = PAGE_FILE.read_text("utf-8")
TABLE = re.findall(r'^\| `"([\w-]+)"` \|[^|\n]*\| ([^|\n]*) \| ([^|\n]*)\|$', PAGE, re.MULTILINE)
assert [name for name, *_ in TABLE] == list(backend_names())
assert all(make_backend(name).name == name for name in backend_names())

import os
import anyio

path, os.environ["PATH"] = os.environ["PATH"], ""
try:
    for name, how, _ in TABLE:
        if how.startswith("`npm"):
            probe = anyio.run(make_backend(name).probe)
            assert not probe.found and how.strip("`") in probe.advice, (name, probe)
finally:
    os.environ["PATH"] = path
assert (
    dict((name, how) for name, _, how in TABLE)["opencode"].strip("` ")
    == make_backend("opencode").login
)
assert Agent("a", "x", backend="api:anthropic:claude-opus-5").backend
