from __future__ import annotations

from typing import Any

from handrail import Steps, step, workflow
from handrail.web.graph_json import graph_of


@workflow
def flow(names: list[str]) -> Steps[None]:
    """A group, and a step under a condition."""
    yield from step("each").for_each(names, lambda name: step(f"see {name}").call(str, name))
    if names:
        yield from step("tell").call(print)


def test_a_node_says_which_steps_it_stands_for() -> None:
    """A step has what is certain of its name, and of the groups around it; the rest has none."""
    graph: Any = graph_of(flow.definition.function)
    nodes = {node["label"]: node for node in graph["nodes"]}
    assert nodes["each"]["name"] == ["each"]
    assert nodes["each"]["inside"] == []
    seen = next(node for node in graph["nodes"] if node["inside"])
    assert (seen["name"], seen["inside"]) == (["see ", ""], [["each"]])
    assert None is nodes["if"]["name"]
    told = [edge["from"] for edge in graph["edges"] if edge["to"] == nodes["tell"]["id"]]
    assert [nodes["if"]["id"]] == told


def test_a_function_without_source_has_no_graph() -> None:
    """What is not there is not guessed."""
    assert None is graph_of(print)
