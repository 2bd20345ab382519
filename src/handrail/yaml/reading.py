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

    def read(self) -> Any:
        try:
            loader = yaml.SafeLoader(self.file.read_text("utf-8"))
            node = loader.get_single_node()
            if isinstance(node, yaml.MappingNode):
                self.fills = self.fills or "workflow" in [key.value for key, _ in node.value]
            return None if node is None else self._value(loader, node)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise self._refused(line, f"this is not YAML: {error.problem}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise self._refused(1, f"it cannot be read: {error}") from None
        except RecursionError:
            raise self._refused(1, "an alias leads back to itself") from None

    def _refused(self, line: int, what: str, instead: str = "Correct it.") -> FileRefused:
        return FileRefused(str(self.file), line, what, instead)

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node) -> Any:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, one) for one in node.value]
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            found = Mapped(str(self.file), line)
            for key, value in node.value:
                name, at = str(loader.construct_object(key)), key.start_mark.line + 1
                if found.lines.setdefault(name, at) != at:
                    raise self._refused(at, f"{name!r} is there twice", "Keep one of them.")
                found[name] = self._value(loader, value)
            return found
        if node.tag == "!file":
            return self._included(str(node.value), line)
        value = loader.construct_object(node)
        return self._filled(value, line) if self.fills and isinstance(value, str) else value

    def _included(self, name: str, line: int) -> Any:
        file = self.file.parent / name
        if file.resolve() in self.above or not file.is_file():
            raise self._refused(line, f"!file {name} is no other file", "Correct the path.")
        if file.suffix in {".yaml", ".yml"}:
            return _Reader(file, self.above).read()
        text = TextOfFile(self._filled(file.read_text("utf-8"), line))
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
