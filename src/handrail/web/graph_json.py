"""The flowchart of a workflow as JSON; the page colours it by the steps of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handrail.static.mermaid import ChartNode, draw_outline
from handrail.static.outline import outline
from handrail.static.source import Source, SourceUnavailable, source_of
from handrail.typed.jsonsafe import Json


def graph_of(code: Callable[..., Any] | Source) -> Json:
    """The nodes and arrows of a workflow's flowchart; None if its source cannot be read.

    ``name`` and ``inside`` are the literal parts of the names of a node's step and of the groups
    around it; any text may be between the parts. The page matches recorded steps to nodes by them.
    """
    try:
        chart = draw_outline(outline(code if isinstance(code, Source) else source_of(code)))
    except SourceUnavailable:
        return None
    return {
        "nodes": [_node(node) for node in chart.nodes],
        "edges": [
            {"from": edge.start, "to": edge.end, "label": edge.text, "dashed": edge.dashed}
            for edge in chart.edges
        ],
    }


def _node(node: ChartNode) -> Json:
    step = node.step
    if step is None:
        around: Json = None
        return {
            "id": node.id,
            "label": " ".join(node.lines),
            "kind": "",
            "name": around,
            "inside": [],
        }
    inside: list[Json] = [list(one.fixed) for one in node.inside]
    own = inside[:-1] if node.inside and node.inside[-1] is step.name else inside
    return {
        "id": node.id,
        "label": step.name.text,
        "kind": step.verb,
        "name": list(step.name.fixed),
        "inside": own,
    }
