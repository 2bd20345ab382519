"""A workflow's source as a Mermaid flowchart.

Theory of operation. The nodes of the outline are drawn in order. After a node there is a list of
``Port``: arrows that have a start and no end yet. A node is the end of the ports before it, and
returns its own. ``return``, ``raise``, ``break`` and ``continue`` move their ports to ``Exits``,
from which the enclosing function, loop or ``finally`` takes them. A ``try`` is a box; the arrows to
its handlers start at the node that opens it, because each step in it may raise. Arrows go from node
to node, never to a box: Mermaid cannot lay out such arrows between nested boxes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Literal, TypeAlias, assert_never

from handrail.model.dataclass import dataclass
from handrail.static.chain import StepName, printable, shorten
from handrail.static.outline import (
    BranchNode,
    ExceptArm,
    ExitNode,
    HelperNode,
    LoopNode,
    Node,
    Outline,
    Part,
    StepNode,
    TryNode,
    WithNode,
    outline,
)
from handrail.static.source import Source

Shape: TypeAlias = Literal[
    "box", "rounded", "pill", "diamond", "hexagon", "slanted", "funnel", "tray", "double", "flag"
]

_BRACKETS: dict[Shape, tuple[str, str]] = {
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


@dataclass(frozen=True, slots=True)
class ChartNode:
    """A node: its lines of text, its step, if any, and the names of the groups around it."""

    id: str
    lines: tuple[str, ...]
    step: StepNode | None
    inside: tuple[StepName, ...]


@dataclass(frozen=True, slots=True)
class ChartEdge:
    """An arrow; ``dashed`` if an error takes it."""

    start: str
    end: str
    text: str
    dashed: bool

    def __str__(self) -> str:
        arrow = "-.->" if self.dashed else "-->"
        said = f"|{label(self.text)}|" if self.text else ""
        return f"{self.start} {arrow}{said} {self.end}"


class Flowchart:
    """A ``flowchart TD`` under construction; ``text()`` returns it. Mutable.

    Edges are written after all nodes, because Mermaid puts a node into the subgraph that first
    mentions it.
    """

    def __init__(self) -> None:
        self.nodes: list[ChartNode] = []
        self._lines: list[str] = []
        self._edges: dict[ChartEdge, None] = {}
        self._inside: tuple[StepName, ...] = ()
        self._depth = 1
        self._count = 0

    @property
    def edges(self) -> tuple[ChartEdge, ...]:
        """The arrows, in the order in which they were added."""
        return tuple(self._edges)

    def node(self, shape: Shape, *lines: str, step: StepNode | None = None) -> str:
        """Add a node with these lines of text; returns its id."""
        self._count += 1
        name = f"n{self._count}"
        opened, closed = _BRACKETS[shape]
        self._write(f"{name}{opened}{label(*lines)}{closed}")
        self.nodes.append(ChartNode(name, lines, step, self._inside))
        return name

    def edge(self, start: str, end: str, text: str = "", *, dashed: bool = False) -> None:
        """Add an arrow, unless the same arrow is there."""
        self._edges[ChartEdge(start, end, text, dashed)] = None

    @contextmanager
    def subgraph(self, *lines: str, group: StepName | None = None) -> Generator[str]:
        """A titled box around all that is added inside the ``with``; yields its id."""
        self._count += 1
        name = f"g{self._count}"
        self._write(f"subgraph {name}[{label(*lines)}]")
        self._depth += 1
        around = self._inside
        self._inside = around if group is None else (*around, group)
        yield name
        self._inside = around
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
    text = re.sub(r'["#<>&`]|(?<=%)%|^\s|\s$', _entity, printable(line))
    # A line break, a formula and an icon to Mermaid, even as entities: a word joiner splits them.
    text = re.sub(r"\\(?=n)|\$(?=\$)|fa[a-z]?:(?=fa-)", r"\g<0>#8288;", text)
    # Mermaid reads "direction " as a statement anywhere.
    text = re.sub(r"d(?=irection\s)", _entity, text)
    # Older versions read a label that begins like a list as Markdown, and refuse to show it.
    text = re.sub(r"^([-*+]|\d+[.)])(?=\s)", _list_mark, text)
    # Mermaid drops the last `;` of anything like a style statement, which breaks an entity.
    return text.replace(":", "#58;") if re.search("style|classDef", text) else text


def _entity(found: re.Match[str]) -> str:
    return f"#{ord(found.group())};"


def _list_mark(found: re.Match[str]) -> str:
    mark = found.group()
    return f"{mark[:-1]}#{ord(mark[-1])};"


_SHAPES: dict[str, Shape] = {
    "agent": "rounded",
    "generate": "rounded",
    "command": "slanted",
    "ask": "hexagon",
    "wait_for": "flag",
    "sleep": "flag",
    "validate": "funnel",
    "subworkflow": "double",
    "run_workflow": "double",
    "branch": "diamond",
}
_INLINE = frozenset({"scope", "holding", "worktree"})
_GROUPS = {
    "parallel": "all done",
    "race": "first done",
    "for_each": "all done",
    "work": "none left",
}
_ANYTHING = {"", "Exception", "BaseException"}


@dataclass(frozen=True, slots=True)
class Port:
    """An arrow without an end yet: its start and label, and whether an error takes it."""

    start: str
    label: str = ""
    dashed: bool = False

    def labelled(self, more: str) -> Port:
        """The same arrow with more on its label."""
        return replace(self, label=f"{self.label}: {more}" if self.label else more)


Ports: TypeAlias = list[Port]


@dataclass(slots=True)
class Exits:
    """The ports that leave a block other than at its end."""

    returns: Ports = field(default_factory=list[Port])
    raises: Ports = field(default_factory=list[Port])
    breaks: Ports = field(default_factory=list[Port])
    continues: Ports = field(default_factory=list[Port])

    def each(self) -> tuple[tuple[str, Ports], ...]:
        """The four lists, each with the statement that fills it."""
        return (
            ("return", self.returns),
            ("raise", self.raises),
            ("break", self.breaks),
            ("continue", self.continues),
        )


def to_mermaid(source: Source) -> str:
    """A Mermaid flowchart of a workflow, read from its source.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """
    return chart_of(outline(source))


def chart_of(tree: Outline) -> str:
    """A Mermaid flowchart of an outline."""
    return draw_outline(tree).text()


def draw_outline(tree: Outline) -> Flowchart:
    """The flowchart of an outline, with its nodes and arrows as data."""
    drawing = _Drawing(Flowchart(), Exits())
    start = drawing.chart.node("pill", tree.name)
    nodes = tree.nodes
    if nodes and isinstance(nodes[-1], ExitNode) and nodes[-1].kind == "return":
        nodes = nodes[:-1]  # a last return leads to the end node anyway
    ends = drawing.run(nodes, [Port(start)])
    ends += drawing.exits.returns
    if ends:
        drawing.join(ends, drawing.chart.node("pill", "end"))
    if drawing.exits.raises:
        drawing.join(drawing.exits.raises, drawing.chart.node("pill", "failed"))
    return drawing.chart


@dataclass(frozen=True, slots=True)
class _Catching:
    """The handlers of a ``try`` that is being drawn, and the ports raised into each."""

    handlers: tuple[ExceptArm, ...]
    raised: tuple[Ports, ...]

    def ports_of_error(self, error: str) -> Ports | None:
        """The list for raises of this exception, if a handler here certainly catches it."""
        for handler, ports in zip(self.handlers, self.raised, strict=True):
            names = set(handler.exceptions or ("",))
            if error in names or names & _ANYTHING:
                return ports
        return None


@dataclass(frozen=True, slots=True)
class _Drawing:
    chart: Flowchart
    exits: Exits
    catching: tuple[_Catching, ...] = ()

    def join(self, ports: Sequence[Port], end: str) -> None:
        for port in ports:
            self.chart.edge(port.start, end, port.label, dashed=port.dashed)

    def run(self, nodes: Sequence[Node], ports: Ports) -> Ports:
        """Draw nodes in order; stops when no port is left, as the rest cannot run."""
        for node in nodes:
            ports = self.node(node, ports)
            if not ports:
                break
        return ports

    def node(self, node: Node, ports: Ports) -> Ports:
        match node:
            case StepNode():
                return self.step(node, ports)
            case HelperNode():
                return self.helper(node, ports)
            case BranchNode():
                return self.branch(node, ports)
            case LoopNode():
                return self.loop(node, ports)
            case TryNode():
                return self.try_block(node, ports)
            case WithNode(nodes=nodes):
                return self.run(nodes, ports)
            case ExitNode():
                return self.exit(node, ports)
            case _:
                assert_never(node)

    # Steps

    def step(self, node: StepNode, ports: Ports) -> Ports:
        parts = [part for part in node.parts if part.role != "fallback"]
        if node.verb in _GROUPS and parts:
            name, ends = self.group(node, parts, ports)
        elif node.verb in _INLINE and parts:
            nodes = tuple(one for part in parts for one in part.nodes)
            title = ", ".join(filter(None, _lines(node) if node.detail else (node.name.text,)))
            ends = self.helper(HelperNode(title, nodes, node.line, node.column), ports)
            return self.fallbacks(
                node, ends, [replace(end, label="on error", dashed=True) for end in ends]
            )
        elif node.verb == "branch":
            name, ends = self.choice(node, parts, ports)
        else:
            name, ends = self.leaf(node, parts, ports)
        return self.fallbacks(node, ends, [Port(name, "on error", dashed=True)])

    def fallbacks(self, node: StepNode, ends: Ports, errors: Ports) -> Ports:
        for part in node.parts:
            if part.role == "fallback":
                ends = ends + self.run(part.nodes, errors)
        return ends

    def leaf(self, node: StepNode, parts: list[Part], ports: Ports) -> tuple[str, Ports]:
        name = self.chart.node(_SHAPES.get(node.verb, "box"), *_lines(node), step=node)
        self.join(ports, name)
        if not parts:
            return name, [Port(name)]
        for part in parts:
            self.join(self.run(part.nodes, [Port(name, "not passed")]), name)
        return name, [Port(name, "passed")]

    def choice(self, node: StepNode, parts: list[Part], ports: Ports) -> tuple[str, Ports]:
        name = self.chart.node("diamond", *_lines(node), step=node)
        self.join(ports, name)
        ends = [end for part in parts for end in self.run(part.nodes, [Port(name, part.label)])]
        return name, ends or [Port(name)]

    def group(self, node: StepNode, parts: list[Part], ports: Ports) -> tuple[str, Ports]:
        with self.chart.subgraph(node.name.text, group=node.name):
            fork = self.chart.node("pill", *_lines(node)[1:], step=node)
            left = [end for part in parts for end in self.member(part, Port(fork))]
            join = self.chart.node("pill", _GROUPS[node.verb])
        if node.verb == "work":
            more = [replace(port.labelled("brings tasks"), dashed=True) for port in left]
            self.join(more, fork)
        self.join(ports, fork)
        self.join(left, join)
        return join, [Port(join)]

    def member(self, part: Part, fork: Port) -> Ports:
        """Draw a member; its ends and its errors stay inside the group."""
        inside = _Drawing(self.chart, Exits())
        if part.repeated:
            with self.chart.subgraph(shorten(part.label)):
                ends = inside.run(part.nodes, [fork])
        else:
            ends = inside.run(part.nodes, [fork])
        return ends + inside.exits.returns + inside.exits.raises

    def helper(self, node: HelperNode, ports: Ports) -> Ports:
        if not node.nodes:
            name = self.chart.node("box", node.call)
            self.join(ports, name)
            return [Port(name)]
        inside = replace(self, exits=Exits(raises=self.exits.raises))
        with self.chart.subgraph(node.call):
            if not _begins_with_a_node(node.nodes):
                ports = self.point("start", ports)
            ends = inside.run(node.nodes, ports)
        return ends + inside.exits.returns

    def point(self, text: str, ports: Ports, shape: Shape = "box") -> Ports:
        """Draw a node that only serves as the start of arrows."""
        name = self.chart.node(shape, text)
        self.join(ports, name)
        return [Port(name)]

    # Control flow

    def branch(self, node: BranchNode, ports: Ports) -> Ports:
        name = self.chart.node("diamond", f"match {node.subject}" if node.subject else "if")
        self.join(ports, name)
        return [
            end for arm in node.arms for end in self.run(arm.nodes, [Port(name, arm.condition)])
        ]

    def loop(self, node: LoopNode, ports: Ports) -> Ports:
        head = self.chart.node("tray", "while" if node.test else node.header)
        self.join(ports, head)
        exits = Exits(self.exits.returns, self.exits.raises)
        inside = replace(self, exits=exits)
        turn = [Port(head)]
        if node.test:
            turn = inside.point(node.header, inside.run(node.test, turn), "diamond")
        asked = turn[0]
        enter = "" if node.endless else "true" if node.header.startswith("while") else "each"
        again = inside.run(node.nodes, [replace(asked, label=enter)])
        self.join([port.labelled("again") for port in again + exits.continues], head)
        done = [] if node.endless else [replace(asked, label="done")]
        return (self.run(node.orelse, done) if done else []) + exits.breaks

    def exit(self, node: ExitNode, ports: Ports) -> Ports:
        match node.kind:
            case "return":
                self.exits.returns.extend(port.labelled("return") for port in ports)
            case "raise":
                text = f"raise {node.text}".strip()
                error = node.text.partition("(")[0]
                self.ports_of_error(error).extend(
                    replace(p.labelled(text), dashed=True) for p in ports
                )
            case "break":
                self.exits.breaks.extend(port.labelled("break") for port in ports)
            case "continue":
                self.exits.continues.extend(ports)
        return []

    def ports_of_error(self, error: str) -> Ports:
        for catching in reversed(self.catching):
            if (ports := catching.ports_of_error(error)) is not None:
                return ports
        return self.exits.raises

    def try_block(self, node: TryNode, ports: Ports) -> Ports:
        if not node.final:
            return self.draw_try(node, ports)[1]
        inside = replace(self, exits=Exits())
        head, ends = inside.draw_try(node, ports)
        left = [port for _, aside in inside.exits.each() for port in aside]
        error = Port(head, "error", dashed=True)
        after = self.run(node.final, [*ends, *left, error])
        outer = dict(self.exits.each())
        for kind, aside in inside.exits.each():
            if aside and kind != "raise":
                outer[kind].extend(port.labelled(kind) for port in after)
        outer["raise"].extend(replace(port.labelled("error"), dashed=True) for port in after)
        return after if ends else []

    def draw_try(self, node: TryNode, ports: Ports) -> tuple[str, Ports]:
        """Draw a ``try`` without its ``finally``; the node where errors start, and open ends."""
        catching = _Catching(node.handlers, tuple([] for _ in node.handlers))
        inside = replace(self, catching=(*self.catching, catching))
        with self.chart.subgraph(""):
            head = self.chart.node("pill", "try")
            self.join(ports, head)
            ends = inside.run(node.nodes, [Port(head)])
        ends = self.run(node.orelse, ends) if ends else ends
        for handler, raised in zip(node.handlers, catching.raised, strict=True):
            error = Port(head, ", ".join(handler.exceptions) or "any error", dashed=True)
            ends = ends + self.run(handler.nodes, [error, *raised])
        return head, ends


def _begins_with_a_node(nodes: Sequence[Node]) -> bool:
    match nodes[0] if nodes else None:
        case None | ExitNode():
            return False
        case WithNode(nodes=inner):
            return _begins_with_a_node(inner)
        case _:
            return True


def _lines(node: StepNode) -> tuple[str, ...]:
    verb = node.verb or "?"
    what = f"{verb}: {node.detail}" if node.detail else verb
    return (node.name.text, what, ", ".join(node.modifiers))
