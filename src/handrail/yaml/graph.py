"""A workflow file as a graph of nodes, which all say things in the words of Conductor."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from inspect import Parameter
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import msgspec

from handrail.addons import FileRefused
from handrail.yaml import templates
from handrail.yaml.reading import Mapped, read_mapping
from handrail.yaml.tables import refusals

END = "$end"
"""The target of a route that ends the workflow."""
PLAIN: Mapping[str, Any] = {
    "string": str, "number": float, "boolean": bool, "array": list[Any], "object": dict[str, Any],
}  # fmt: skip
"""The type by each word for one."""
BOUNDS: Mapping[str, str] = {
    "minimum": "ge", "maximum": "le", "minLength": "min_length", "maxLength": "max_length",
    "pattern": "pattern", "description": "description",
}  # fmt: skip
"""What ``msgspec.Meta`` calls the bounds of a field."""
OF_STEPS = ("agent", "script", "call", "workflow", "human_gate", "wait")
"""The types of nodes that are one step, and so may be members of a group."""
_HOUR_S = 3600.0
_WITHOUT_END = frozenset({"infinity", "inf", ".inf", "infinite", "unbounded", "never"})
_PROGRAMS = {".py": [sys.executable], ".sh": ["bash"], ".bash": ["bash"]}


@attrs.frozen
class Route:
    """Where a node leads if ``when`` holds: a template or an expression; None: always.

    ``compared``: an operator and a text, for the value that a ``branch`` looks up.
    """

    to: str
    when: str | None = None
    compared: tuple[str, str] | None = None
    output: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Node:
    """A node: its type, its name, what it says, and its routes."""

    kind: str
    name: str
    said: Mapped
    routes: tuple[Route, ...]


@attrs.frozen(kw_only=True)
class Graph:
    """A workflow. ``flat``: workhorse's, whose context is one map of names to values."""

    file: Path
    name: str
    start: str
    nodes: Mapping[str, Node]
    said: Mapped
    parameters: tuple[Parameter, ...]
    output: Mapping[str, str] = attrs.field(factory=dict)
    flat: bool = False
    flows: Mapping[str, Graph] = attrs.field(factory=dict)

    def under(self, key: str) -> Mapping[str, Any]:
        """The mapping that the file has at a key, such as ``limits``; perhaps empty."""
        return self.said.get(key) or {}


def graph_of(file: Path, without: Collection[str] = ()) -> Graph:
    """The graph of a file; ``without``: what has no counterpart, and is left out.

    Raises:
        FileRefused: something in it is wrong, or has no counterpart.
    """
    graph, found = read(file, without)
    if graph is None:
        first = found[0]
        raise FileRefused(first.file, first.line, first.what, first.instead, len(found) - 1)
    return graph


def read(file: Path, without: Collection[str] = ()) -> tuple[Graph | None, list[FileRefused]]:
    """The graph of a file, or all that is refused in it, in order of lines."""
    try:
        data = read_mapping(file)
        is_flat = "nodes" in data
        found = list(refusals(data, "workhorse" if is_flat else "conductor", without))
        graph = None if found else (_workhorse if is_flat else _conductor)(file, data)
        found += _wrong_names(graph) if graph else ()
    except FileRefused as error:
        return None, [error]
    return None if found else graph, sorted(found, key=lambda one: one.line)


def _wrong_names(graph: Graph) -> Iterator[FileRefused]:
    if graph.start not in graph.nodes:
        key, there = (
            "start" if graph.flat else "entry_point",
            f"There are: {', '.join(graph.nodes)}.",
        )
        yield graph.said.refuse(key, f"there is no node {graph.start!r}", there)
    for node in graph.nodes.values():
        yield from _wrong_leads(graph, node)
        yield from _wrong_members(graph, node)
        yield from _malformed(node.said)
    for flow in graph.flows.values():
        yield from _wrong_names(flow)


def _wrong_leads(graph: Graph, node: Node) -> Iterator[FileRefused]:
    """The nodes, the flows and the files that a node names, and that are not there."""
    said, prompt = node.said, node.said.get("prompt")
    for route in node.routes:
        if route.to not in {END, *graph.nodes}:
            there = f"There are: {', '.join(graph.nodes)}."
            yield said.refuse("routes", f"there is no node {route.to!r}", there)
    for file in (said.get("workflow"), prompt if isinstance(prompt, Path) else None):
        if file is not None and not (graph.file.parent / file).is_file():
            what = f"there is no file {str(file)!r} beside this one"
            yield said.refuse("workflow", what, "Write the path of a file.")
    if "flow" in said and said["flow"] not in graph.flows:
        flows = f"There are: {', '.join(graph.flows)}."
        yield said.refuse("flow", f"there is no flow {said['flow']!r}", flows)
    if node.kind == "branch" and _is_circle(graph.nodes, node):
        what = f"{node.name!r} leads back to itself with no node between that does anything"
        yield said.refuse("routes", what, "Lead one of its routes elsewhere.")


def _wrong_members(graph: Graph, node: Node) -> Iterator[FileRefused]:
    """The members of a group that are no step or not there, and what a node has twice."""
    said, options = node.said, node.said.get("options") or ()
    names = [str(name) for name in said["agents"]] if node.kind == "parallel" else []
    for name in names:
        if name not in graph.nodes:
            there = f"There are: {', '.join(graph.nodes)}."
            yield said.refuse("agents", f"there is no node {name!r}", there)
    members = [graph.nodes[name] for name in names if name in graph.nodes]
    for member in [*members, *([said["member"]] if "member" in said else ())]:
        if member.kind not in OF_STEPS:
            what = f"a node of type {member.kind!r} cannot be a member of {node.name!r}"
            yield member.said.refuse("type", what, f"Write one of: {', '.join(OF_STEPS)}.")
    told = [[str(option[key]) for option in options] for key in ("label", "value")]
    for key, words in zip(("agents", "options", "options"), (names, *told), strict=True):
        for word in sorted({word for word in words if words.count(word) > 1}):
            yield said.refuse(key, f"`{key}:` has {word!r} twice", "Keep one of them.")


def _malformed(said: Mapped) -> Iterator[FileRefused]:
    """The templates of a mapping that Jinja cannot read, and types that cannot be made."""
    for key, value in said.items():
        for part in value if isinstance(value, list) else [value]:
            try:
                if isinstance(part, str) and key not in {"description", "criteria"}:
                    templates.names_in(part)
                elif isinstance(part, Mapped):
                    if key == "output" and all(
                        isinstance(field, Mapped) for field in part.values()
                    ):
                        record_type("answer", part)
                    yield from _malformed(part)
            except (templates.TemplateError, TypeError, ValueError, re.error) as error:
                yield said.refuse(key, f"`{key}:` is malformed: {error}", "Correct it.")


def _is_circle(nodes: Mapping[str, Node], node: Node) -> bool:
    """True if branches alone lead from a branch to itself, which would never end."""
    met, rest = set[str](), [node.name]
    while rest:
        for route in nodes[rest.pop()].routes:
            if route.to in nodes and nodes[route.to].kind == "branch" and route.to not in met:
                met.add(route.to)
                rest.append(route.to)
    return node.name in met


def _by_name(nodes: list[Node]) -> Mapping[str, Node]:
    found = dict[str, Node]()
    for node in nodes:
        if found.setdefault(node.name, node) is not node:
            what = f"there are two nodes {node.name!r}"
            raise node.said.refuse("name", what, "Give one of them another name.")
    return found


def _conductor(file: Path, data: Mapped) -> Graph:
    flow = data["workflow"]
    groups = {"parallel": data.get("parallel") or (), "for_each": data.get("for_each") or ()}
    nodes = [_node(file, said) for said in data["agents"]]
    nodes += [_node(file, said, kind) for kind, found in groups.items() for said in found]
    inputs: Any = flow.get("input") or {}
    taken = [_input(inputs, name) for name in inputs]
    rest = Parameter("inputs", Parameter.VAR_KEYWORD, annotation=Any)
    return Graph(
        file=file,
        name=flow["name"],
        start=flow["entry_point"],
        nodes=_by_name(nodes),
        said=flow,
        parameters=tuple(taken) or (rest,),
        output=data.get("output") or {},
    )


def _node(file: Path, said: Mapped, kind: str = "") -> Node:
    said["folder"] = getattr(said.get("prompt"), "folder", file.parent)
    if kind == "for_each":
        said["member"] = _node(file, said["agent"])
    routes = [
        Route(one["to"], None if one.get("when") is None else str(one["when"]), None,
              one.get("output") or {}) for one in said.get("routes") or ()
    ] or [Route(one["route"]) for one in said.get("options") or ()] or [Route(END)]  # fmt: skip
    return Node(kind or said.get("type") or "agent", str(said["name"]), said, tuple(routes))


def _parameter(said: Mapped, name: str, default: Any, annotation: Any = Any) -> Parameter:
    if name.isidentifier() and not iskeyword(name):
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    what = f"{name!r} cannot be the name of an input"
    raise said.refuse(name, what, "Write letters, digits and underscores.")


def _input(inputs: Mapped, name: str) -> Parameter:
    said = inputs[name]
    kind, default = PLAIN[said["type"]], said.get("default")
    if said.get("required", True) and "default" not in said:
        default = Parameter.empty
    kind = kind | None if default is None else kind
    try:
        msgspec.convert(None if default is Parameter.empty else default, kind | None)
    except msgspec.ValidationError as error:
        raise said.refuse("default", f"`default:` does not fit: {error}", "Correct it.") from None
    about = said.get("description")
    return _parameter(inputs, name, default, Annotated[kind, str(about)] if about else kind)


def _workhorse(file: Path, data: Mapped, name: str = "") -> Graph:
    variables: Any = data.get("vars") or {}
    title, flows = str(name or data.get("name") or file.stem), data.get("flows") or {}
    nodes = [_translated(file, said, data) for said in data["nodes"]]
    rest = Parameter("inputs", Parameter.VAR_KEYWORD, annotation=Any)
    taken = [_parameter(variables, name, variables[name]) for name in variables]
    return Graph(
        file=file,
        name=title,
        start=data["start"],
        nodes=_by_name(nodes),
        said=data,
        parameters=(*taken, rest),
        flat=True,
        flows={key: _workhorse(file, one, f"{title}-{key}") for key, one in flows.items()},
    )


def _translated(file: Path, given: Mapped, graph: Mapped) -> Node:
    """A node of workhorse's in the words of Conductor."""
    said, outputs = Mapped(given.file, given.line), given.get("outputs") or []
    said |= {
        key: given[key] for key in given if key in {"args", "activity", "fn", "path", "add_dirs"}
    }
    said |= {"folder": file.parent, "keys": [str(one["key"]) for one in outputs]}
    kind, routes = str(given["type"]), [Route(str(given.get("next")))]
    match kind:
        case "agent":
            said["prompt"] = Path(given["prompt"])
            said["output"] = {key: {} for key in said["keys"]} or None
            said["default"] = {str(output["key"]): output.get("default") for output in outputs}
            said["timeout_seconds"] = _seconds(given)
            said["working_dir"] = given.get("cwd")
            said["model"] = given["model"] if isinstance(given.get("model"), str) else None
        case "script":
            script = file.parent.resolve() / given["script"]
            words = [*_PROGRAMS.get(script.suffix, ()), str(script), *(given.get("args") or ())]
            said |= {"command": words[0], "args": words[1:]}
            said["env"] = {**(graph.get("env") or {}), **(given.get("env") or {})}
            said["working_dir"] = given.get("cwd") or str(file.parent)
        case "call":
            said["wrap"] = {str(output["key"]): output.get("wrap") for output in outputs}
        case "flow":
            kind, said["flow"], said["input_mapping"] = "workflow", given["name"], given.get("args")
        case "branch":
            cases, tests = given.get("cases") or {}, given.get("conditions") or ()
            routes = [Route(to, None, ("==", case)) for case, to in cases.items()]
            routes += [Route(one["next"], None, (one["op"], str(one["value"]))) for one in tests]
            routes += [Route(given["default"])] if given.get("default") else []
        case _:
            said["status"] = "success" if kind == "terminal" else "failed"
            kind, routes, said["reason"] = "terminate", [], f"it reached {given['id']!r}"
    return Node(kind, str(given["id"]), said, tuple(routes))


def _seconds(given: Mapped) -> float | None:
    timeout = given.get("timeout")
    if str(timeout).strip().lower() in _WITHOUT_END:
        return None
    try:
        return float(timeout or _HOUR_S)
    except ValueError:
        what = f"`timeout:` is {timeout!r}"
        raise given.refuse("timeout", what, "Write seconds, or infinity.") from None


def record_type(name: str, fields: Mapping[str, Mapping[str, Any]]) -> Any:
    """A ``TypedDict`` of these fields; a field without a schema has anything."""
    make: Any = TypedDict
    return make(class_name(name), {key: _type_of(f"{name}_{key}", fields[key]) for key in fields})


def _type_of(name: str, field: Mapping[str, Any]) -> Any:
    made: Any = PLAIN.get(str(field.get("type")), Any)
    if words := field.get("enum"):
        made = Literal[tuple(words)]
    elif items := field.get("items"):
        made = list.__class_getitem__(_type_of(f"{name}_item", items))
    elif properties := field.get("properties"):
        made = record_type(name, properties)
    bounds = {BOUNDS[key]: value for key, value in field.items() if key in BOUNDS}
    made = Annotated[made, msgspec.Meta(**bounds)] if bounds else made
    made = made | None if field.get("nullable") else made
    return NotRequired[made] if field.get("required") is False else made


def class_name(name: str) -> str:
    """The name of a class for a node's name: ``quality_checker`` is ``QualityChecker``."""
    made = "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", name))
    return made if made[:1].isalpha() else f"Node{made}"
