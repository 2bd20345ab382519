"""Modules that are loaded when they are first used, for what few runs need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Later:
    """A module that is loaded at the first use of a name in it. Mutable: it keeps that name."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._module), name)
        setattr(self, name, found)  # so its next use costs no call
        return found


def later(names: dict[str, Any], modules: str) -> None:
    """Add modules of this package to a module's ``names``, each to be loaded when first used.

    Most of what a small run costs is what it loads. Type checkers, and the check of the layers,
    read an import of the same modules under ``TYPE_CHECKING``. ``modules`` are separated by spaces,
    with another name behind a colon if need be: ``steps.waits:wait_verbs``.
    """
    for module in modules.split():
        path, _, name = module.partition(":")
        names[name or path.rpartition(".")[2]] = _Later(f"handrail.{path}")
