"""Compares the page docs/how-to/worker.md with the code, in the names of its blocks."""

import re
import shutil
import tempfile
from pathlib import Path

from handrail.cli.schedule import SOON_S, schedules_of
from handrail.project import project_table

PAGE = PAGE_FILE.read_text("utf-8")
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "pyproject.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    nightly, triage = schedules_of(project_table(Path(folder)))
assert (nightly.name, nightly.overlap, nightly.missed, triage.timezone) == (
    "nightly",
    "skip",
    "once",
    "UTC",
)
assert (
    nightly.run_id(1795483800) == "nightly-20261124T013000Z"
    and nightly.last(1795483801) == 1795483800
)
assert SOON_S == 120
keys = set(
    re.findall(
        r"^\| `(\w+)` \|",
        PAGE.split("## Start runs by")[1].split("## Get notified")[0],
        re.MULTILINE,
    )
)
from handrail.cli.schedule import _KEYS

assert keys == set(_KEYS), keys
