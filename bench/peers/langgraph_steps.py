"""LangGraph: one node that leads to itself; its SQLite checkpointer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, TypedDict

from common import report
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class Counted(TypedDict):
    """The state of the graph."""

    count: int
    most: int


def one(state: Counted) -> dict[str, int]:
    """What each step does."""
    return {"count": state["count"] + 1}


def where(state: Counted) -> str:
    """Where it goes on."""
    return "one" if state["count"] < state["most"] else END


def run(count: int, saver: Any = None) -> None:
    """So many steps, one after the other."""
    graph = StateGraph(Counted)
    graph.add_node("one", one)
    graph.add_edge(START, "one")
    graph.add_conditional_edges("one", where, ["one", END])
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"recursion_limit": count + 10, "configurable": {"thread_id": "1"}}
    out = compiled.invoke({"count": 0, "most": count}, config)
    assert out["count"] == count


def durable(count: int) -> None:
    """A checkpoint a step in the file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteSaver.from_conn_string(str(Path(folder) / "graph.db")) as saver,
    ):
        run(count, saver)


report("langgraph", run, durable)
