"""References to callables: how a record names code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import FunctionType
from typing import Any

NEWER: Mapping[str, Any] = {"newer": True}
"""Metadata of fields that version 0.1 did not have. They have defaults, which are not recorded, and
are no part of a fingerprint, so that a run whose steps were given such an object is resumed.
"""

_RECORDED_AS = {
    "handrail.codec.unresolved:Unresolvable": "handrail.model.unresolved:Unresolvable",
    "handrail.agents.gemini:GeminiBackend": "handrail.agents.gemini.backend:GeminiBackend",
    "handrail.agents.opencode:OpencodeBackend": "handrail.agents.opencode.backend:OpencodeBackend",
    "handrail.agents.prompt:Files": "handrail.agents.background:Files",
    "handrail.engine.current:ContextNotAMapping": "handrail.engine.contexts:ContextNotAMapping",
    "handrail.errors:CancelledFromWithin": "handrail.engine.stops:CancelledFromWithin",
    "handrail.errors:CoreStalled": "handrail.engine.stops:CoreStalled",
    "handrail.model.policy:Budget": "handrail.model.budget:Budget",
    "handrail.model.policy:Ladder": "handrail.model.ladder:Ladder",
    "handrail.record.rows:UnreadableRecord": "handrail.model.records:UnreadableRecord",
    "handrail.secrets.values:Secrets": "handrail.model.policy:Secrets",
    "handrail.static.source:SourceUnavailable": "handrail.dsl.source:SourceUnavailable",
    "handrail.steps.verbs:StepNotYielded": "handrail.steps.forgotten:StepNotYielded",
    "handrail.steps.verbs:Stage": "handrail.model.steps:Stage",
    "handrail.system.spawn:CommandNotStarted": "handrail.system.refusal:CommandNotStarted",
    "handrail.typed.convert:DoesNotFit": "handrail.model.convert:DoesNotFit",
    "handrail.workspace.errors:PatchRefused": "handrail.agents.cassette.errors:PatchRefused",
    "handrail.workspace.errors:ScopeViolated": "handrail.agents.bounds.errors:ScopeViolated",
    "handrail.workspace.errors:WorktreeConflict": "handrail.agents.bounds.errors:WorktreeConflict",
}
"""handrail's own classes whose names in a record are not where they are now.

A journal is read by later versions, and its records compared with those of today. So a class that
moves keeps the name that records have for it.
"""
_NOW = {recorded: now for now, recorded in _RECORDED_AS.items()}


def recorded_name(name: str) -> str:
    """``module:qualname`` of a class, as records have it."""
    return _RECORDED_AS.get(name, name)


def name_now(recorded: str) -> str:
    """``module:qualname`` of the class that a record names."""
    return _NOW.get(recorded, recorded)


def reference(target: Callable[..., Any]) -> str:
    """``module:qualname`` of a callable; ``__main__`` becomes its file's stem.

    A partial is named by its function; an object that is called is named by its class.
    """
    if type(target) is FunctionType and target.__module__ != "__main__":
        return f"{target.__module__}:{target.__qualname__}"
    if isinstance(target, functools.partial):
        return f"partial({reference(target.func)})"
    named = target if hasattr(target, "__qualname__") else type(target)
    module = getattr(named, "__module__", None) or "builtins"
    if module == "__main__":
        module = main_name()
    return f"{module}:{named.__qualname__}"


def main_name() -> str:
    """What ``__main__`` is called in a record: its file's stem."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return _stem(file) if file else "__main__"


@functools.lru_cache(maxsize=1)
def _stem(file: str) -> str:
    return PurePath(file).stem


def importable(target: object) -> bool:
    """True if the callable can be found again by module and qualified name."""
    if isinstance(target, functools.partial):
        return importable(target.func)
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    found: Any = module
    for part in getattr(target, "__qualname__", "<none>").split("."):
        found = getattr(found, part, None)
    return found is target and getattr(target, "__module__", None) != "__main__"
