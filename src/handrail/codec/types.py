"""Which class a name in a record means; nothing is ever imported to find it."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Any
from uuid import UUID

from handrail.codec.writing import class_of
from handrail.model import results, work
from handrail.typed.reference import reference

_RESULTS: tuple[type, ...] = (
    results.AgentResult,
    results.BranchResult,
    results.CommandResult,
    results.Failure,
    results.OpenGate,
    results.RollbackError,
    results.Skipped,
    results.StageResult,
    results.StepResult,
    results.UnparsedCommandResult,
    results.Usage,
    results.ValidationResult,
    results.ValidationRoundResult,
    results.WaitsFor,
    results.WorkflowResult,
    work.Found,
    work.Task,
    work.TaskDone,
    work.TaskFailed,
    work.TaskRefused,
    work.Work,
)
OWN_TAGS: dict[type, str] = {cls: f"handrail:{cls.__name__}" for cls in _RESULTS}
OWN_CLASSES: dict[str, type] = {tag: cls for cls, tag in OWN_TAGS.items()}

_SHORT: dict[str, Any] = {
    "None": type(None),
    "...": ...,
    **{
        cls.__name__: cls
        for cls in (
            date, datetime, time, timedelta, Decimal, Fraction, UUID,
            Path, PurePath, PurePosixPath, PureWindowsPath,
        )
    },
}  # fmt: skip
SHORT_NAMES = {found: name for name, found in _SHORT.items()}


def tag_of(cls: Any) -> str:
    """The name under which values of a class are recorded."""
    return OWN_TAGS.get(cls) or reference(cls)


def find_by_name(name: str) -> Any:
    """The loaded object that a tag or the name of a type means, or None.

    The search reads only dictionaries, because a module's ``__getattr__`` might import.
    """
    if name in OWN_CLASSES:
        return OWN_CLASSES[name]
    module, colon, path = name.partition(":")
    if not colon:
        return _SHORT.get(name) or vars(builtins).get(name)
    in_main = _walk(sys.modules.get("__main__"), path)
    if getattr(in_main, "__module__", None) == "__main__" and reference(in_main) == name:
        return in_main
    return _walk(sys.modules.get(module), path)


def type_by_name(name: str) -> Any:
    """The loaded class, or form of ``typing``, that a name means, or None."""
    found = find_by_name(name)
    kind = class_of(found)
    is_type = isinstance(found, type) or found is ... or kind.__module__ == "typing"
    return found if is_type else None


def still_loaded(cls: type) -> bool:
    """True if the module of the class still has the class under its name."""
    module = sys.modules.get(cls.__module__)
    return isinstance(module, ModuleType) and _held(module).get(cls.__qualname__) is cls


def _walk(found: Any, path: str) -> Any:
    for part in path.split("."):
        if found is None:
            return None
        found = _own(found).get(part)
    return found


def _own(owner: object) -> Mapping[str, Any]:
    """The attributes of a module, or of a class and its bases."""
    if isinstance(owner, ModuleType):
        return _held(owner)
    if isinstance(owner, type):
        return {k: v for cls in reversed(owner.__mro__) for k, v in vars(cls).items()}
    return {}


def _held(module: ModuleType) -> Mapping[str, Any]:
    """The attributes of a module; reading them does not load a lazy module."""
    held: Mapping[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    return held
