"""From which TARGET, and in which folder, a run was started: recorded as labels, and found again.

A file is recorded relative to the folder that the journal's folder stands in, if it lies below
that, so that a project may be moved; a module by its name. The current folder is recorded where it
is another one: a resumed run goes on in the folder that it was started in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handrail.cli.channels import tell
from handrail.cli.exits import Refused
from handrail.cli.journal import Place
from handrail.cli.target import is_file, load, split
from handrail.ports.journal import RunInfo

TARGET = "target"
FOLDER = "folder"


def labels_of(target: str, workflow: Any, place: Place) -> dict[str, str]:
    """What to record of a run that is started here and now."""
    where, name = split(target)
    if is_file(where):
        where = _relative(Path(where).resolve(), place)
    labels = {TARGET: f"{where}:{name or _name_of(workflow)}"}
    here = Path.cwd().resolve()
    if here != place.base:
        labels[FOLDER] = _relative(here, place)
    return labels


def workflow_of(info: RunInfo, place: Place, target: str | None = None) -> Any:
    """The workflow of a run, imported from where the run says, or from another TARGET.

    From here on the process is in the folder that the run was started in.

    Raises:
        Refused: the run does not say, or there is no such file, module or workflow.
    """
    if target is not None:
        return load(target)
    recorded = info.labels.get(TARGET)
    if recorded is None:
        why = "was not started by this command, so its workflow is not known"
        raise Refused(f"run {info.run_id}", why, "Name it: --target file.py:name.")
    _go_to(place.base / info.labels.get(FOLDER, ""))
    found = _absolute(recorded, place)
    tell(f"run {info.run_id} of {recorded}")
    try:
        return load(found)
    except Refused as error:
        hint = f"{error.hint} If it is elsewhere now: --target file.py:name.".strip()
        raise Refused(error.what, error.why, hint) from error


def target_of(labels: Mapping[str, str]) -> str:
    """The recorded TARGET, or nothing."""
    return labels.get(TARGET, "")


def _go_to(folder: Path) -> None:
    if not folder.is_dir():
        tell(f"the folder that it was started in is gone, {folder}; it goes on in this one")
    elif folder != Path.cwd():
        tell(f"in {folder}")
        os.chdir(folder)


def _absolute(recorded: str, place: Place) -> str:
    where, _, name = recorded.rpartition(":")
    return f"{place.base / where}:{name}" if is_file(where) else recorded


def _relative(path: Path, place: Place) -> str:
    below = path.is_relative_to(place.base)
    return (path.relative_to(place.base) if below else path).as_posix()


def _name_of(workflow: Any) -> str:
    """The name that a workflow has in its module."""
    module = sys.modules.get(workflow.definition.function.__module__)
    names = (name for name, value in vars(module).items() if value is workflow) if module else ()
    return next(iter(names), str(workflow.definition.name))
