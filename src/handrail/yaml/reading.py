"""Reads YAML into plain data that knows its lines, with ``!file`` and ``${VAR:-default}`` put in.

The one file that needs PyYAML.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from handrail.addons import FileRefused
from handrail.errors import MissingExtra

try:
    import yaml
except ImportError as error:
    raise MissingExtra("A workflow in YAML", "PyYAML", "yaml") from error

_MOST_BYTES = 4_000_000
_MOST_VALUES = 100_000
"""How many values a file may have; one with aliases of aliases has more than memory."""
_VARIABLE = re.compile(r"\$\{([^}:]+)(?::-([^}]*))?\}")


class Mapped(dict[str, Any]):
    """A mapping of a file: its line, and that of each key."""

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line
        self.lines: dict[str, int] = {}

    def refuse(self, key: str, what: str, instead: str) -> FileRefused:
        """The refusal of what a key says."""
        return FileRefused(self.file, self.lines.get(key, self.line), what, instead)


class TextOfFile(str):
    """A text that ``!file`` read; ``folder`` is where what it includes is found."""

    __slots__ = ("folder",)
    folder: Path


def read_mapping(file: Path) -> Mapped:
    """The mapping that a file is.

    Raises:
        FileRefused: it cannot be read, is not YAML, or is something else.
    """
    found = _Reader(file, ()).read()
    if isinstance(found, Mapped):
        return found
    raise FileRefused(str(file), 1, "this is no mapping", "A workflow is a mapping.")


class _Reader:
    def __init__(self, file: Path, above: tuple[Path, ...]) -> None:
        self.file, self.above = file, (*above, file.resolve())
        self.fills = bool(above)  # ${VAR} is Conductor's, whose files have `workflow:`
        self.left = _MOST_VALUES

    def read(self) -> Any:
        try:
            if self.file.stat().st_size > _MOST_BYTES:
                raise self._refused(1, f"it is larger than {_MOST_BYTES} bytes", "Split it.")
            loader = yaml.SafeLoader(self.file.read_text("utf-8-sig"))
            node = loader.get_single_node()
            if isinstance(node, yaml.MappingNode):
                self.fills = self.fills or "workflow" in [key.value for key, _ in node.value]
            return None if node is None else self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise self._refused(line, f"this is not YAML: {error.problem}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise self._refused(1, f"it cannot be read: {error}") from None
        except RecursionError:
            raise self._refused(1, "it is nested too deep") from None

    def _refused(self, line: int, what: str, instead: str = "Correct it.") -> FileRefused:
        return FileRefused(str(self.file), line, what, instead)

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, around: tuple[Any, ...]) -> Any:
        """The value of a node that is inside those ``around`` it."""
        line = node.start_mark.line + 1
        self.left -= 1
        if self.left < 0:
            what = f"with its aliases it has more than {_MOST_VALUES} values"
            raise self._refused(line, what, "Split it, or use fewer aliases.")
        if node in around:
            raise self._refused(line, "an alias leads back to itself")
        around = (*around, node)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, around) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, around)
        if node.tag == "!file":
            return self._included(str(node.value), line)
        try:
            value = loader.construct_object(node)
        except ValueError as error:
            raise self._refused(line, f"{str(node.value)[:80]!r} is no value: {error}") from None
        return self._filled(value, line) if self.fills and isinstance(value, str) else value

    def _mapping(
        self, loader: yaml.SafeLoader, node: yaml.MappingNode, around: tuple[Any, ...]
    ) -> Mapped:
        """A mapping, whose own keys go before those that ``<<`` brings in."""
        found, merged = Mapped(str(self.file), node.start_mark.line + 1), list[Any]()
        for key, value in node.value:
            line, given = key.start_mark.line + 1, self._value(loader, value, around)
            if key.tag == "tag:yaml.org,2002:merge":
                merged += given if isinstance(given, list) else [given]
                continue
            name = str(self._value(loader, key, around))
            if name in found:
                raise self._refused(line, f"{name!r} is there twice", "Keep one of them.")
            found[name], found.lines[name] = given, line
        for other in merged:
            if not isinstance(other, Mapped):
                raise self._refused(found.line, "`<<:` must be a mapping")
            found.lines, lines = {**other.lines, **found.lines}, found.lines
            found |= {key: other[key] for key in other if key not in lines}
        return found

    def _included(self, name: str, line: int) -> Any:
        file = self.file.parent / name
        if file.resolve() in self.above or not file.is_file():
            raise self._refused(line, f"!file {name} is no other file", "Correct the path.")
        if file.suffix in {".yaml", ".yml"}:
            return _Reader(file, self.above).read()
        try:
            text = TextOfFile(self._filled(file.read_text("utf-8"), line))
        except (OSError, UnicodeDecodeError) as error:
            raise self._refused(line, f"!file {name} cannot be read: {error}") from None
        text.folder = file.parent
        return text

    def _filled(self, text: str, line: int) -> str:
        def value_of(match: re.Match[str]) -> str:
            value = os.environ.get(match[1], match[2])
            if value is not None:
                return value
            instead = f"Set it, or write ${{{match[1]}:-default}}."
            raise self._refused(line, f"the environment has no variable {match[1]}", instead)

        return _VARIABLE.sub(value_of, text)


def scalar(text: str) -> Any:
    """The value that YAML reads from a text, or the text itself."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, bool) and text.strip().lower() not in {"true", "false"}:
        return text  # `yes` and `off` were values in YAML 1.1 alone
    plain = isinstance(value, (bool, int, float, str, list, dict)) or text.strip() in {"null", "~"}
    return value if plain else text
