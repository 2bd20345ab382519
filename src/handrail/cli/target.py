"""TARGET: ``file.py:name`` or ``module:name``, as the workflow that it names."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from handrail.cli.exits import Refused
from handrail.cli.imports import import_file, import_module
from handrail.model.definition import WorkflowDefinition

Found = Mapping[str, Any]
"""The workflows of a module by the names they have in it."""


def load(target: str) -> Any:
    """The workflow that a TARGET names; its file or module is imported.

    Raises:
        Refused: there is no such file, module or workflow, or its import fails.
    """
    place, name = split(target)
    module = _imported(place)
    workflows = workflows_of(module)
    if not name:
        return _only(place, workflows)
    if is_workflow(chosen := getattr(module, name, None)):
        return chosen
    return _named(place, name, module, workflows)


def split(target: str) -> tuple[str, str]:
    """The file or module of a TARGET, and the name in it, or no name."""
    if ":" not in target or Path(target).exists():
        return target, ""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise Refused(f"TARGET {target!r}", "is not file.py:name or module:name")
    return place, name


def is_workflow(value: object) -> bool:
    """True for what ``@workflow`` returns."""
    return isinstance(getattr(value, "definition", None), WorkflowDefinition)


def workflows_of(module: ModuleType) -> dict[str, Any]:
    """The workflows that a module defines; those it imported from elsewhere are left out."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if is_workflow(value) and value.definition.function.__module__ == module.__name__:
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def is_file(place: str) -> bool:
    """True if the first part of a TARGET is the path of a file, and no module's name."""
    return place.endswith(".py") or os.sep in place or Path(place).is_file()


def _imported(place: str) -> ModuleType:
    path = Path(place)
    if is_file(place):
        if path.is_dir():
            hint = f"handrail list {place} shows the workflows below it."
            raise Refused(place, "is a folder, not a Python file", hint)
        return import_file(path)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return import_module(place)


def _only(place: str, workflows: Found) -> Any:
    if len(workflows) == 1:
        return next(iter(workflows.values()))
    if not workflows:
        why = "defines no workflow"
        raise Refused(place, why, "A workflow is a generator function with @workflow above it.")
    listed = ", ".join(f"{place}:{name}" for name in workflows)
    raise Refused(place, f"defines {len(workflows)} workflows", f"Say which: {listed}.")


def _named(place: str, name: str, module: ModuleType, workflows: Found) -> Any:
    """The workflow that calls itself so, where no attribute of the module does."""
    titled = [one for one in workflows.values() if one.definition.name == name]
    if len(titled) == 1:
        return titled[0]
    if hasattr(module, name):
        hint = "A workflow is a generator function with @workflow above it."
        raise Refused(f"{place}:{name}", "is not a workflow", hint)
    raise Refused(place, f"has no workflow {name!r}", f"It has: {known(workflows, name)}")


def known(names: Sequence[str] | Found, wanted: str) -> str:
    """The names there are, and the one that was probably meant."""
    listed = ", ".join(names) or "none"
    near = difflib.get_close_matches(wanted, list(names), n=1)
    return f"{listed}. Did you mean {near[0]!r}?" if near else f"{listed}."
