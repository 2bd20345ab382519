"""Workflow files of Conductor and of workhorse, as workflows: ``load("flow.yaml")``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.addons import FileRefused as FileRefused
    from handrail.yaml.files import load as load
    from handrail.yaml.files import settings as settings
    from handrail.yaml.shapes import public as public

_HOMES = {
    "files": "load settings", "reading": "FileRefused scalar", "templates": "holds render value",
    "shapes": """begin beside compared entries failed fields_of folders grouped incr key_of look_up
        printed public seconds seed selected store Verdict""",
}  # fmt: skip
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name's module, and the library that it needs, when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'handrail.yaml' has no attribute {name!r}")
    return getattr(import_module(f"handrail.yaml.{_MODULES[name]}"), name)
