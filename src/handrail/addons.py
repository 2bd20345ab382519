"""What installed packages add: commands, journals, backends, sinks and pages, by entry points.

A package names a group and, in it, a name and where the thing is:

    [project.entry-points."handrail.sinks"]
    webhook = "their_package.sinks:Webhook"

Temporal, the hub and the page register what they add in the same way. The files are read here, and
not by ``importlib.metadata``: the import of that takes longer than a command needs to start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from handrail.errors import DefinitionError, MissingExtra

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
FILES = "handrail.files"
"""By a file's suffix: who reads workflows from such files; the how-to page has what it has."""


class FileRefused(DefinitionError):
    """A workflow file says something that handrail has no counterpart for, or that is wrong.

    ``instead``: what to write; ``more``: how many further refusals there are.
    """

    def __init__(self, file: str, line: int, what: str, instead: str, more: int = 0) -> None:
        super().__init__(file, line, what, instead, more)
        self.file, self.line, self.what, self.instead = file, line, what, instead
        self.more = more

    def __str__(self) -> str:
        more = f" ({self.more} more: handrail check {self.file})" if self.more else ""
        return f"{self.file}:{self.line}: {self.what}. {self.instead}{more}"


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
        DefinitionError: nothing is, or it cannot be imported. MissingExtra: it needs a library.
    """
    where = registered(group).get(name)
    if where is None:
        raise DefinitionError(f"no installed package has registered {name!r} in {group!r}")
    module, _, attribute = where.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except MissingExtra:
        raise
    except (ImportError, AttributeError) as error:
        why = f"{name!r} of {group!r} is registered as {where}, which cannot be imported: {error}"
        raise DefinitionError(why) from error


def reader_of(path: Path) -> Any | None:
    """Who reads workflows from files with this path's suffix; None for a file of Python."""
    suffix = path.suffix.removeprefix(".")
    return load(FILES, suffix) if suffix and suffix in registered(FILES) else None


def source_of(where: str) -> Path | None:
    """The file of what this package registers as ``module:name``; None for other packages."""
    module = where.partition(":")[0]
    if not module.startswith(_OURS):
        return None
    return _PACKAGE.joinpath(*module.removeprefix(_OURS).split(".")).with_suffix(".py")


def _is_there(where: str) -> bool:
    file = source_of(where)
    return file is None or file.is_file()


@cache
def _read(path: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    """All groups of handrail's in the metadata on the path; of one name the first counts."""
    found: dict[str, dict[str, str]] = {}
    for folder in dict.fromkeys(path):
        with contextlib.suppress(OSError):
            inside = sorted(file.name for file in os.scandir(folder or "."))
            for name in inside:
                if name.endswith((".dist-info", ".egg-info")):
                    _take(found, Path(folder, name, "entry_points.txt"))
    if not any(where.startswith(_OURS) for where in found.get(COMMANDS, {}).values()):
        _take_checkout(found)
    return found


def _take(found: dict[str, dict[str, str]], file: Path) -> None:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return
    group = ""
    for line in map(str.strip, text.splitlines() if f"[{_OURS}" in text else ()):
        name, equals, where = line.partition("=")
        if line.startswith("["):
            group = line.strip("[]")
        elif equals and group.startswith(_OURS):
            found.setdefault(group, {}).setdefault(name.strip(), where.strip())


def _take_checkout(found: dict[str, dict[str, str]]) -> None:
    """Take what this package registers, if it runs from a checkout not installed since."""
    import tomllib

    with contextlib.suppress(OSError, ValueError, KeyError):
        file = _PACKAGE.parents[1] / "pyproject.toml"
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        for group, entries in project["entry-points"].items():
            if project["name"] == _OURS.rstrip(".") and group.startswith(_OURS):
                found[group] = {**entries, **found.get(group, {})}
