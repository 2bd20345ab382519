"""Compares the page docs/how-to/deploy.md with the code, in the names of its blocks."""

import inspect
import json
import re
from pathlib import Path

import yaml

PAGE = PAGE_FILE
TEXT = PAGE.read_text("utf-8")


def block(kind):
    """The one block of this language."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return found


def arguments(line):
    """What uvicorn is told, but for the address."""
    return [word for word in line if word not in ("127.0.0.1", "0.0.0.0")]


(unit,) = re.findall(r"^ExecStart=\S+/(uvicorn .*)$", block("ini"), re.MULTILINE)
(command,) = re.findall(r"^CMD (.*)$", block("dockerfile"), re.MULTILINE)
assert arguments(unit.split()) == arguments(json.loads(command))
compose = yaml.safe_load(block("yaml"))
mounted = compose["services"]["approvals"]["volumes"][0].split(":")
assert mounted[0] in compose["volumes"] and f"VOLUME {mounted[1]}" in block("dockerfile")
assert f"APPROVALS_DB={mounted[1]}/" in block("dockerfile")
graceful = int(unit.split()[-1])
assert int(re.search(r"TimeoutStopSec=(\d+)", block("ini"))[1]) > graceful
assert int(compose["services"]["approvals"]["stop_grace_period"].rstrip("s")) > graceful

from handrail import SqliteJournal

assert inspect.signature(SqliteJournal.__init__).parameters["lease_s"].default == 30
