"""The folders on disk of a run's artifacts: one for the run, one for each part of a path."""

from __future__ import annotations

import re
from functools import lru_cache

from handrail.model.paths import on_disk

# Files that lie beside the folders of steps. A step of such a name gets a folder of another name.
_TAKEN = re.compile(
    r"(run\.json|events\.jsonl|output\.json|error\.txt|transcript\.jsonl|activity\.jsonl|stdout|stderr"
    r"|reasoning\.md|(prompt|answer)(-\d+)?\.md|(resumed|detached|notify)\.log|notified\.jsonl)\Z"
)
_MAX_FOLDER_CHARS = 600
"""Characters that the path of a step's folder may have; a hash replaces deeper parts."""


def run_folder(workflow_name: str, run_id: str) -> str:
    """The folder of a run: ``<workflow>-<run id>``."""
    return on_disk(f"{workflow_name}-{run_id}" if workflow_name else run_id)


@lru_cache(maxsize=256)  # it is called for each line that a program prints
def step_folder(path: str) -> str:
    """The folder of a step, relative to its run's: one folder for each part of the path.

    Different paths have different folders.
    """
    found = ""
    parts = path.split("/")
    for count, part in enumerate(parts):
        folder = on_disk(part)
        if _TAKEN.match(folder):
            folder = f"%{ord(folder[0]):02X}{folder[1:]}"
        if found and len(found) + len(folder) >= _MAX_FOLDER_CHARS:
            rest = "/".join(parts[count:]).encode("utf-8", "surrogatepass")
            import hashlib

            return f"{found}/{hashlib.sha256(rest).hexdigest()[:24]}"
        found = f"{found}/{folder}" if found else folder
    return found


def numbered(name: str, number: int) -> str:
    """``prompt.md``, ``prompt-2.md``, ..."""
    stem, dot, ending = name.rpartition(".")
    return name if number < 2 else f"{stem}-{number}{dot}{ending}"
