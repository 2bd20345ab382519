"""Values as TOML writes them on one line, for programs that take their settings as arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast


def toml_value(value: Any) -> str:
    """A JSON value in TOML; a member that is None is left out, for TOML knows no null."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        said = [f"{_text(name)} = {toml_value(one)}" for name, one in members if one is not None]
        return f"{{{', '.join(said)}}}"
    if isinstance(value, (list, tuple)):
        listed = cast("list[object]", value)
        return f"[{', '.join(toml_value(one) for one in listed if one is not None)}]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)  # numbers and booleans are written alike


def _text(value: str) -> str:
    # JSON's escapes are TOML's too, but TOML wants one for DEL, and has none for half pairs.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
