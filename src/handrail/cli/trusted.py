"""Whose code the command runs without being told where it is.

Commands that read run no code of a project. Those that drive runs do: of the user's own files, and
of others' files only in a folder that the user trusts, by ``handrail trust`` or when asked. Of an
executor that was loaded, its journal is noted, so that commands that read find it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handrail.cli.channels import tell
from handrail.cli.exits import Refused
from handrail.system.marker import enclosing_step
from handrail.workspace.places import state_home

_CODE = ("executor", "sinks", "services", "notify", "schedule", "stages")
"""The keys of ``[tool.handrail]`` that name code or commands."""
_ROOT = 0
"""The user who can do all that this one can."""


def require_own(file: Path, *, asks: bool = True) -> None:
    """Raise if a file is another user's, and not in a folder that this user trusts.

    A person at the terminal is asked, once for a folder, if it ``asks``.

    Raises:
        Refused: it is.
    """
    folder = file.parent
    owner = file.stat().st_uid if file.exists() else os.getuid()
    if owner in {os.getuid(), _ROOT} or _is_trusted(folder, owner):
        return
    why = f"belongs to another user ({owner}), so its code is not run"
    if not asks or not allows(f"{file} belongs to another user ({owner}). Run code of {folder}?"):
        raise Refused(str(file), why, f"If you trust it: handrail trust {folder}")
    _write(folder, trusted=True)


def allows(question: str) -> bool:
    """True if the person at the terminal says yes; False without a person, and in a step."""
    from handrail.cli.gates import can_ask  # it draws, which few commands need

    if not can_ask() or enclosing_step() is not None:
        return False
    tell(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def require_own_project(table: Mapping[str, Any]) -> None:
    """Raise if the project's table names code, and the project is another user's.

    Raises:
        Refused: it is.
    """
    if table["file"] and any(key in table for key in _CODE):
        require_own(Path(table["file"]))


def note_trust(table: Mapping[str, Any], start: Path) -> Path:
    """Note that the user trusts the project of a folder; its root."""
    root = _root(table, start)
    _write(root, trusted=True)
    return root


def note_journal(table: Mapping[str, Any], executor: Any) -> None:
    """Note where the executor of a project keeps its runs."""
    from handrail import SqliteJournal

    journal = executor.journal
    path = str(journal.path) if isinstance(journal, SqliteJournal) else None
    root = _root(table, Path.cwd())
    if _entry(root).get("journal") != path and enclosing_step() is None:
        _write(root, journal=path)


def known_journal(table: Mapping[str, Any]) -> Path | None:
    """Where the executor of a project kept its runs when it was last loaded."""
    path = _entry(_root(table, Path.cwd())).get("journal")
    return None if path is None else Path(path)


def _root(table: Mapping[str, Any], start: Path) -> Path:
    return Path(table["file"]).parent if table["file"] else start.resolve()


def _is_trusted(folder: Path, owner: int) -> bool:
    entries = (_entry(above) for above in (folder, *folder.parents))
    return any(entry.get("trusted") and entry["owner"] == owner for entry in entries)


def _file(folder: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(folder), digest_size=16).hexdigest()
    return state_home() / "handrail" / "trusted" / f"{name}.json"


def _entry(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_file(folder).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if found.get("owner") == folder.stat().st_uid else {}


def _write(folder: Path, **more: Any) -> None:
    file = _file(folder)
    entry = {**_entry(folder), "folder": str(folder), "owner": folder.stat().st_uid, **more}
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(json.dumps(entry), "utf-8")
    except OSError as error:
        tell(f"{file} cannot be written ({error.strerror}), so nothing is noted of {folder}")
