"""``[tool.handrail]`` of a project's ``pyproject.toml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from handrail import addons
from handrail.errors import DefinitionError, did_you_mean


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, cast("list[object]", value)))


def _table(value: object) -> bool:
    return isinstance(value, dict)


def _tables(value: object) -> bool:
    return isinstance(value, list) and all(map(_table, cast("list[object]", value)))


def _sandbox(value: object) -> bool:
    return isinstance(value, (bool, dict))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "backend": (_text, "text, such as 'claude'"),
    "model": (_text, "text"),
    "stages": (_table, "a table of commands by name"),
    "executor": (_text, "'file.py:name' or 'module:name'"),
    "max_steps": (_number, "a number"),
    "timeout": (_number, "a number of seconds"),
    "budget_usd": (_number, "a number of dollars"),
    "max_launches": (_number, "a number"),
    "max_concurrency": (_number, "a number of steps at once"),
    "tags": (_table, "a table of counts by tag, of steps at once"),
    "rates": (_table, "a table of counts by tag, of starts a minute"),
    "labels": (_table, "a table of texts by name"),
    "ladder": (_table, "a table of the fields of Ladder"),
    "sandbox": (_sandbox, "true, false, or a table of the fields of Sandbox"),
    "instructions": (_text, "text"),
    "sinks": (_texts, "a list of 'module:factory'"),
    "services": (_text, "'module:factory'"),
    "notify": (_text, "a command for the shell"),
    "schedule": (_tables, "a list of tables: [[tool.handrail.schedule]]"),
}


def project_table(start: Path | None = None) -> dict[str, Any]:
    """``[tool.handrail]`` of the nearest ``pyproject.toml`` at or above a folder.

    The key ``file`` is added: that file, or "" if there is none.

    Raises:
        DefinitionError: the file is not TOML, or the table has an unknown key or a wrong value.
    """
    folder = (start or Path.cwd()).resolve()
    for above in (folder, *folder.parents):
        file = above / "pyproject.toml"
        if file.is_file():
            return {"file": str(file), **_checked(file, _table_in(file))}
    return {"file": ""}


def no_such_key(file: str, table: str, name: str, known: Sequence[str]) -> DefinitionError:
    """The error for an unknown key of a table."""
    hint = did_you_mean([name], known) or f" It may have: {', '.join(known)}."
    return DefinitionError(f"{file}: {table} has no key {name!r}.{hint}")


@lru_cache(maxsize=1)  # each executor asks for the same one
def _parsed(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _table_in(file: Path) -> dict[str, Any]:
    try:
        table = _parsed(file.read_text("utf-8"))
    except ValueError as error:  # it is no TOML, or no UTF-8
        raise DefinitionError(f"{file} cannot be read as TOML: {error}") from None
    tools: Any = table.get("tool", {})
    found: Any = tools.get("handrail", {}) if _table(tools) else {}
    if not _table(found):
        raise DefinitionError(f"{file}: [tool.handrail] must be a table, got {found!r}")
    return deepcopy(found)


def _checked(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    for name, value in table.items():
        keys = _KEYS if name in _KEYS else {**_KEYS, **_added_keys()}
        if name not in keys:
            raise no_such_key(str(file), "[tool.handrail]", name, list(keys))
        fits, wanted = keys[name]
        if not fits(value):
            raise DefinitionError(f"{file}: [tool.handrail] {name} must be {wanted}, got {value!r}")
    return table


def _added_keys() -> Mapping[str, tuple[Callable[[object], bool], str]]:
    """The keys of registered journals, the address by each one's name, and settings of add-ons."""
    found: dict[str, tuple[Callable[[object], bool], str]] = {}
    for kind in addons.names(addons.JOURNALS):
        settings = getattr(addons.load(addons.JOURNALS, kind), "settings", {})
        wanted = {kind: "an address as text", **settings}
        found |= {name: (_text, said) for name, said in wanted.items()}
    for kind in addons.names(addons.FILES):
        added = getattr(addons.load(addons.FILES, kind), "settings", {})
        found |= {name: (_text, said) for name, said in added.items()}
    return found


def configured_stages(start: Path | None = None) -> dict[str, Any]:
    """``[tool.handrail.stages]`` of the nearest ``pyproject.toml`` at or above a folder.

    Raises:
        DefinitionError: that file is not TOML, or a stage is neither text nor a list of texts.
    """
    table = project_table(start)
    stages: dict[str, Any] = table.get("stages", {})
    for name, given in stages.items():
        command: Any = given
        if isinstance(given, dict) and set(cast("dict[str, Any]", given)) == {"stages"}:
            command = cast("dict[str, Any]", given)["stages"]
        words = cast("list[object]", command if isinstance(command, list) else [command])
        if not words or not all(isinstance(word, str) for word in words):
            raise DefinitionError(
                f"{table['file']}: [tool.handrail.stages] {name} must be a command as text or a "
                f"list of texts, or {{stages = [names]}}, got {command!r}"
            )
    return dict(stages)
