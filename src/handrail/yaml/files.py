"""Files as workflows: what the command line asks of them, and ``load``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Generator, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from handrail import AgentOptions, Budget, Executor, Limits, Workflow, workflow
from handrail.project import project_table
from handrail.static.lint import Finding
from handrail.yaml import templates
from handrail.yaml.graph import END, Graph, Node, graph_of, read
from handrail.yaml.walk import backend_of, walk


def load(path: str | PathLike[str], *, without: Collection[str] = ()) -> Workflow[..., Any]:
    """The workflow that a file of Conductor or workhorse describes.

    ``without``: what it may say that has no counterpart, and is left out; besides those of
    ``yaml_without`` in ``[tool.handrail]``.

    Raises:
        FileRefused: it says something else that has none, or that is wrong.
    """
    return _load(Path(path), without, {})


def settings(path: str | PathLike[str]) -> dict[str, Any]:
    """What a file says of all its agents, for ``Executor(**settings(path))``."""
    runtime = graph_at(Path(path)).under("runtime")
    servers = runtime.get("mcp_servers") or {}
    names = {"temperature": "temperature", "max_tokens": "max_tokens", "timeout": "timeout_s",
             "max_agent_iterations": "max_turns", "default_reasoning_effort": "effort"}  # fmt: skip
    options = {to: runtime[name] for name, to in names.items() if runtime.get(name) is not None}
    if runtime.get("working_dir"):
        options["cwd"] = str(Path(path).parent / runtime["working_dir"])
    if servers:
        kept = {
            one: {key: said[key] for key in said if key != "tools"} for one, said in servers.items()
        }
        tools = [(one, tool) for one, said in servers.items() for tool in said.get("tools") or ()]
        allowed = [f"mcp__{one}__{tool}" for one, tool in tools if tool != "*"]
        options |= {"mcp_servers": kept, **({"allowed_tools": allowed} if allowed else {})}
    backend, model = backend_of(runtime)
    found: dict[str, Any] = {"backend": backend, "model": model}
    found["agent_options"] = AgentOptions(**options) if options else None
    return {name: one for name, one in found.items() if one is not None}


class YamlFiles:
    """What the command line does with files that end in ``.yaml`` or ``.yml``."""

    settings: ClassVar = {"yaml_without": "the keys to leave out, with blanks between"}

    @staticmethod
    def module(path: Path) -> ModuleType:
        """A module with the file's workflow, and the executor that it asks for."""
        found, given = load(path), settings(path)
        made = ModuleType(found.definition.function.__module__)
        vars(made)[found.definition.name] = found
        vars(made)["__file__"] = str(path)
        vars(made)["__executor__"] = Executor(**given) if given else None
        sys.modules[made.__name__] = made
        return made

    @staticmethod
    def findings(path: Path) -> Iterator[Finding]:
        """What is refused in a file, and the names that its templates find nowhere."""
        graph, refused = read(path, _left_out(path))
        for one in refused:
            yield Finding("HR120", one.what, one.file, one.line, 1, one.instead)
        for node, name in _unknown(graph) if graph else ():
            what = f"node {node.name!r} reads {name!r}, which no input or node has: it is empty"
            yield Finding("HR220", what, str(path), node.said.line, 1, "Correct the name.")

    @staticmethod
    def chart(path: Path, form: str) -> str:
        """The graph as a Mermaid flowchart, or as a list for the terminal."""
        graph = graph_at(path)
        return _mermaid(graph) if form == "mermaid" else _listed(graph)


def _left_out(path: Path) -> list[str]:
    return str(project_table(path.resolve().parent).get("yaml_without", "")).split()


def graph_at(path: Path, without: Collection[str] = ()) -> Graph:
    """The graph of a file, without what the project leaves out."""
    return graph_of(path, [*without, *_left_out(path)])


def _load(
    path: Path, without: Collection[str], known: dict[Path, Workflow[..., Any]]
) -> Workflow[..., Any]:
    resolved = path.resolve()
    if resolved in known:
        return known[resolved]
    file = resolved.relative_to(Path.cwd()) if resolved.is_relative_to(Path.cwd()) else resolved
    graph = graph_at(file, without)
    children: dict[str, Any] = {}
    made: Workflow[..., Any] = workflow(
        name=graph.name, description=_about(graph), limits=_limits(graph)
    )(_function(graph, children))
    known[resolved] = made
    members = [node.said.get("member") for node in graph.nodes.values()]
    for node in [*graph.nodes.values(), *filter(None, members)]:
        if name := node.said.get("workflow"):
            children[name] = _load(file.parent / name, without, known)
    return made


def _about(graph: Graph) -> str:
    return " ".join(str(graph.said.get("description") or "").split())


def _limits(graph: Graph) -> Limits | None:
    limits = graph.under("limits")
    usd = limits.get("budget_usd") if limits.get("budget_mode") == "enforce" else None
    timeout_s, budget = limits.get("timeout_seconds"), Budget(usd=usd) if usd else None
    return Limits(timeout_s=timeout_s, budget=budget) if timeout_s or budget else None


def _function(graph: Graph, children: Mapping[str, Any]) -> Any:
    """A generator function with the graph's inputs as its parameters."""

    def function(**inputs: Any) -> Generator[Any, Any, Any]:
        return (yield from walk(graph, inputs, children))

    made: Any = function
    made.__code__ = function.__code__.replace(co_filename=f"<{graph.file}>", co_name=graph.name)
    made.__name__ = made.__qualname__ = graph.name
    made.__module__ = f"{graph.file.stem}.yaml"
    made.__doc__ = str(graph.said.get("description") or "")
    made.__signature__ = inspect.Signature(graph.parameters, return_annotation=Any)
    made.__annotations__ = {
        parameter.name: parameter.annotation for parameter in graph.parameters
    } | {"return": Any}
    return made


def _unknown(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The variables of workhorse's templates that nothing sets."""
    if not graph.flat:
        return
    known = (
        {parameter.name for parameter in graph.parameters} | templates.HELPERS | {"node_timeout_s"}
    )
    known |= {key for node in graph.nodes.values() for key in node.said["keys"]}
    for node in graph.nodes.values():
        said = node.said
        args = said.get("args") or {}
        texts = [*(args.values() if isinstance(args, Mapping) else args), said.get("working_dir")]
        if isinstance(said.get("prompt"), Path) and (said["folder"] / said["prompt"]).is_file():
            texts.append((said["folder"] / said["prompt"]).read_text("utf-8"))
        names = {name for text in texts if text for name in templates.names_in(str(text))}
        own = {*(args if isinstance(args, Mapping) else ()), "node_timeout_min"}
        yield from ((node, name) for name in sorted(names - known - own))
    for flow in graph.flows.values():
        yield from _unknown(flow)


def _edges(graph: Graph) -> Iterator[tuple[str, str, str]]:
    for node in graph.nodes.values():
        labels = [one["label"] for one in node.said.get("options") or ()]
        for number, route in enumerate(node.routes):
            said = route.when or (" ".join(route.compared) if route.compared else "")
            yield node.name, labels[number] if labels else said, route.to


def _mermaid(graph: Graph) -> str:
    ids = {name: f"n{number}" for number, name in enumerate([*graph.nodes, END])}
    lines = ["flowchart TD", f"    start([start]) --> {ids[graph.start]}"]
    lines += [
        f'    {ids[node.name]}["{node.name}<br>{node.kind}"]' for node in graph.nodes.values()
    ]
    lines += [f"    {ids[END]}([end])"]
    for source, label, to in _edges(graph):
        quoted = label.replace('"', "#quot;")
        lines.append(f"    {ids[source]} --> {ids[to]}")
        lines[-1] = lines[-1].replace(">", f'>|"{quoted}"|') if label else lines[-1]
    return "\n".join(lines)


def _listed(graph: Graph) -> str:
    lines = [f"{graph.name}: begins with {graph.start}"]
    for node in graph.nodes.values():
        leads = [f"{to} if {label}" if label else to for _, label, to in
                 (edge for edge in _edges(graph) if edge[0] == node.name)]  # fmt: skip
        lines.append(f"├─ {node.name}  {node.kind}{' → ' if leads else ''}{'; '.join(leads)}")
    return "\n".join(lines)
