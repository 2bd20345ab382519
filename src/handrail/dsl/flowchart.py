"""Mermaid flowchart text: nodes, edges, subgraphs, and labels that any text can stand in."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

Shape: TypeAlias = Literal[
    "box", "rounded", "pill", "diamond", "hexagon", "slanted", "funnel", "tray", "double", "flag"
]

_SHAPES: dict[Shape, tuple[str, str]] = {
    "box": ("[", "]"),
    "rounded": ("(", ")"),
    "pill": ("([", "])"),
    "diamond": ("{", "}"),
    "hexagon": ("{{", "}}"),
    "slanted": ("[/", "/]"),
    "funnel": ("[\\", "/]"),
    "tray": ("[/", "\\]"),
    "double": ("[[", "]]"),
    "flag": (">", "]"),
}


class Flowchart:
    """A ``flowchart TD`` that grows; ``text()`` gives it. The one mutable object of this module.

    Edges are written after all nodes, because Mermaid takes a node into the subgraph where it is
    first mentioned.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._edges: dict[str, None] = {}
        self._depth = 1
        self._count = 0

    def node(self, shape: Shape, *lines: str) -> str:
        """Add a node with these lines of text; its id."""
        self._count += 1
        name = f"n{self._count}"
        opened, closed = _SHAPES[shape]
        self._write(f"{name}{opened}{label(*lines)}{closed}")
        return name

    def edge(self, start: str, end: str, text: str = "", *, dashed: bool = False) -> None:
        """Add an arrow; the same one twice counts once."""
        arrow = "-.->" if dashed else "-->"
        said = f"|{label(text)}|" if text else ""
        self._edges[f"{start} {arrow}{said} {end}"] = None

    @contextmanager
    def subgraph(self, *lines: str) -> Generator[str]:
        """What is added inside the ``with`` stands in a box with this title; its id."""
        self._count += 1
        name = f"g{self._count}"
        self._write(f"subgraph {name}[{label(*lines)}]")
        self._depth += 1
        yield name
        self._depth -= 1
        self._write("end")

    def text(self) -> str:
        """The whole chart, ending in a newline."""
        edges = (f"    {edge}" for edge in self._edges)
        return "\n".join(["flowchart TD", *self._lines, *edges]) + "\n"

    def _write(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)


def label(*lines: str) -> str:
    """A quoted label that shows these lines exactly, whatever characters are in them."""
    return '"' + ("<br/>".join(_escaped(line) for line in lines if line) or " ") + '"'


def _escaped(line: str) -> str:
    text = "".join(char if char.isprintable() else _spelled(char) for char in line)
    text = re.sub(r'["#<>&`]|(?<=%)%|^\s|\s$', _entity, text)
    # A line break, a formula and an icon to Mermaid, even as entities: a word joiner parts them.
    text = re.sub(r"\\(?=n)|\$(?=\$)|fa[a-z]?:(?=fa-)", r"\g<0>#8288;", text)
    # A statement to Mermaid wherever it stands.
    text = re.sub(r"d(?=irection\s)", _entity, text)
    # Older versions take a label that begins like a list for Markdown, and refuse to show it.
    text = re.sub(r"^([-*+]|\d+[.)])(?=\s)", _list_mark, text)
    # Mermaid drops the last `;` of what looks like a style statement, and with it an entity.
    return text.replace(":", "#58;") if re.search("style|classDef", text) else text


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _entity(found: re.Match[str]) -> str:
    return f"#{ord(found.group())};"


def _list_mark(found: re.Match[str]) -> str:
    mark = found.group()
    return f"{mark[:-1]}#{ord(mark[-1])};"
