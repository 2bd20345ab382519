"""A workflow's source as an indented tree for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from handrail.model.dataclass import dataclass
from handrail.static.chain import printable
from handrail.static.outline import (
    BranchNode,
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


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    inside: tuple[_Line, ...] = ()


def to_text(source: Source) -> str:
    """A workflow's outline as a tree, one line a step or statement, ending in a newline.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """
    return tree_of(outline(source))


def tree_of(tree: Outline) -> str:
    """An outline as such a tree."""
    title = f"{tree.name}({tree.parameters})"
    return "\n".join([printable(title), *_draw_lines(_lines(tree.nodes))]) + "\n"


def _draw_lines(lines: tuple[_Line, ...]) -> Iterator[str]:
    for index, line in enumerate(lines):
        last = index == len(lines) - 1
        yield ("└─ " if last else "├─ ") + printable(line.text)
        for inner in _draw_lines(line.inside):
            yield ("   " if last else "│  ") + inner


def _lines(nodes: Iterable[Node]) -> tuple[_Line, ...]:
    return tuple(line for node in nodes for line in _node(node))


def _node(node: Node) -> Iterator[_Line]:
    match node:
        case StepNode():
            yield _step(node)
        case HelperNode(call=call, nodes=nodes):
            yield _Line(call, _lines(nodes or ()))
        case BranchNode():
            yield from _branch(node)
        case LoopNode(header=header, test=test, nodes=nodes, orelse=orelse):
            yield _Line(header, _lines((*test, *nodes)))
            if orelse:
                yield _Line("else", _lines(orelse))
        case TryNode():
            yield from _try_block(node)
        case WithNode(header=header, nodes=nodes):
            yield _Line(header, _lines(nodes))
        case ExitNode(kind=kind, text=text):
            yield _Line(f"{kind} {text}".strip())
        case _:
            assert_never(node)


def _step(node: StepNode) -> _Line:
    words = (f"{node.verb or '?'} {node.detail}".strip(), *node.modifiers)
    inside = tuple(line for part in node.parts for line in _part(part))
    return _Line(f"{node.name.text} · {', '.join(words)}", inside)


def _part(part: Part) -> Iterator[_Line]:
    match part.role:
        case "member" if part.repeated:
            yield _Line(part.label, _lines(part.nodes))
        case "member":
            yield from _lines(part.nodes)
        case "arm":
            yield _Line(f"if {part.label}", _lines(part.nodes))
        case "body" | "scope" | "setup":
            yield from _lines(part.nodes)
        case "fix":
            yield _Line("while not passed", _lines(part.nodes))
        case "fallback":
            yield _Line("on error", _lines(part.nodes))


def _branch(node: BranchNode) -> Iterator[_Line]:
    for index, arm in enumerate(node.arms):
        last = index == len(node.arms) - 1
        if last and arm.condition == "else" and not arm.nodes:
            continue
        if node.subject:
            text = f"match {node.subject}: {arm.condition}"
        elif arm.condition == "else" and index:
            text = "else"
        else:
            text = f"elif {arm.condition}" if index else f"if {arm.condition}"
        yield _Line(text, _lines(arm.nodes))


def _try_block(node: TryNode) -> Iterator[_Line]:
    yield _Line("try", _lines(node.nodes))
    for handler in node.handlers:
        yield _Line(f"except {', '.join(handler.exceptions)}".strip(), _lines(handler.nodes))
    if node.orelse:
        yield _Line("else", _lines(node.orelse))
    if node.final:
        yield _Line("finally", _lines(node.final))
