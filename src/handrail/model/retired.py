"""Names of backends and their classes that are no more, and what to write in their place."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.errors import DefinitionError

RETIRED_BACKENDS: Mapping[str, str] = {
    "codex-exec": "codex",
    "gemini-acp": "gemini",
    "gemini-cli": "gemini",
    "opencode-run": "opencode",
}
"""The name of the backend that has taken the place of a retired one, and runs its program."""
_WRITE: Mapping[str, str] = {
    **{name: repr(now) for name, now in RETIRED_BACKENDS.items()},
    "CodexExecBackend": "CodexBackend",
    "GeminiBackend": "backend='gemini'",
    "OpencodeBackend": "backend='opencode'",
}


def retired(name: str, whose: str = "handrail") -> DefinitionError | None:
    """The error that says what to write in place of a retired name; None for any other name."""
    now = _WRITE.get(name)
    if now is None:
        return None
    return DefinitionError(f"{whose}: backend {name!r} was retired: write {now}")
