"""What installed packages add: commands, journals, backends, sinks and pages, by entry points.

A package names a group and, in it, a name and where the thing is:

    [project.entry-points."handrail.sinks"]
    webhook = "their_package.sinks:Webhook"

Temporal, the hub and the page register what they add in the same way. The files are read here, and
not by ``importlib.metadata``: the import of that takes longer than a command needs to start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from handrail.errors import DefinitionError

COMMANDS = "handrail.commands"
"""A function or ``cyclopts.App`` by each name; the function returns the exit code."""
JOURNALS = "handrail.journals"
"""For ``--NAME ADDRESS``: a function from an address to a ``Journal``, or an ``OpenedPlace``."""
BACKENDS = "handrail.backends"
"""A function without arguments that makes an ``AgentBackend``."""
SINKS = "handrail.sinks"
"""A function without arguments that makes a ``Sink``."""
PAGES = "handrail.pages"
"""``beside``: serves a page beside a run; ``report``: a run as one HTML file."""

_OURS = "handrail."
_PACKAGE = Path(__file__).parent


def names(group: str) -> Sequence[str]:
    """The names that packages have registered in a group."""
    return tuple(registered(group))


def registered(group: str) -> Mapping[str, str]:
    """What is registered in a group: ``module:name`` by each name, without parts of this package
    that were left out.
    """
    found = _read(tuple(sys.path)).get(group, {})
    return {name: where for name, where in found.items() if _is_there(where)}


def load(group: str, name: str) -> Any:
    """What a package has registered by this name.

    Raises:
        DefinitionError: nothing is, or it cannot be imported.
    """
    where = registered(group).get(name)
    if where is None:
        raise DefinitionError(f"no installed package has registered {name!r} in {group!r}")
    module, _, attribute = where.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        why = f"{name!r} of {group!r} is registered as {where}, which cannot be imported: {error}"
        raise DefinitionError(why) from error


def _is_there(where: str) -> bool:
    module = where.partition(":")[0]
    if not module.startswith(_OURS):
        return True
    file = _PACKAGE.joinpath(*module.removeprefix(_OURS).split("."))
    return file.with_suffix(".py").is_file()


@cache
def _read(path: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    """All groups of handrail's in the metadata on the path; of one name the first counts."""
    found: dict[str, dict[str, str]] = {}
    for folder in dict.fromkeys(path):
        try:
            inside = [file.name for file in os.scandir(folder or ".")]
        except OSError:
            continue
        for name in sorted(inside):
            if name.endswith((".dist-info", ".egg-info")):
                _merge(found, _groups_in(Path(folder, name, "entry_points.txt")))
    if not any(where.startswith(_OURS) for where in found.get(COMMANDS, {}).values()):
        _merge(found, _groups_of_checkout())
    return found


def _merge(found: dict[str, dict[str, str]], more: Mapping[str, Mapping[str, str]]) -> None:
    for group, entries in more.items():
        found[group] = {**entries, **found.get(group, {})}


def _groups_in(file: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    groups: dict[str, dict[str, str]] = {}
    entries: dict[str, str] = {}
    for line in map(str.strip, text.splitlines() if f"[{_OURS}" in text else ()):
        if line.startswith("["):
            group = line.strip("[]")
            entries = groups.setdefault(group, {}) if group.startswith(_OURS) else {}
        elif "=" in line:
            name, _, where = line.partition("=")
            entries[name.strip()] = where.strip()
    return groups


def _groups_of_checkout() -> Mapping[str, Mapping[str, str]]:
    """What this package registers, if it runs from a checkout that was not installed since."""
    import tomllib

    file = _PACKAGE.parents[1] / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text("utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return {}
    groups: Mapping[str, Mapping[str, str]] = project.get("entry-points", {})
    ours = project.get("name") == _OURS.rstrip(".")
    return {name: entries for name, entries in groups.items() if ours and name.startswith(_OURS)}
