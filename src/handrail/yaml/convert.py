"""Writes the Python that a workflow file could have been: ``handrail convert FILE -o flow.py``."""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from textwrap import indent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

import attrs
from cyclopts import Parameter

from handrail.cli.channels import tell
from handrail.yaml import templates
from handrail.yaml.files import graph_at
from handrail.yaml.graph import END, Graph, Node, Route, class_name, record_type
from handrail.yaml.walk import Walk, mode_of

_OWN = (
    "Agent AgentOptions Backoff Budget Choice Limits Step Steps WorkflowError scope step workflow"
)
_TYPING = "Annotated Any Literal NotRequired TypedDict"
_HELPERS = """begin beside compared entries failed fields_of folders grouped holds incr key_of load
 look_up printed public render scalar seconds seed selected store value Verdict"""
_MODULES = {
    "collections": "Counter", "itertools": "count", "pathlib": "Path", "typing": _TYPING,
    "msgspec": "Meta", "handrail": _OWN, "handrail.yaml": _HELPERS,
}  # fmt: skip
_TAKEN = {"seen", "n", *dir(builtins), *" ".join(_MODULES.values()).split()}
"""Names that the code has already."""
_LITERAL = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
Output = Annotated[Path | None, Parameter(alias="-o")]


def convert(file: Path, /, *, output: Output = None) -> int:
    """Write a workflow file as Python.

    Parameters
    ----------
    output
        The file to write. Without it, the code is printed.
    """
    code, is_goto = python_of(file)
    if is_goto:
        tell(f"{file} jumps between its nodes, so the code is a loop over states")
    if output is None:
        sys.stdout.write(code)
    else:
        output.write_text(code, "utf-8")
    return 0


class Code:
    """An expression of Python; what is done with it makes it longer."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __repr__(self) -> str:
        return self.code

    def __getattr__(self, name: str) -> Code:
        """The attribute of an expression, or a name if there is none."""
        return Code(f"{self.code}.{name}" if self.code else name)

    def __getitem__(self, key: object) -> Code:
        return Code(f"{self.code}[{key!r}]")

    def __call__(self, *args: Any, **kwargs: Any) -> Code:
        """A call of it, without arguments that say nothing."""
        given = [(key, _said(one)) for key, one in kwargs.items() if one is not None and one != {}]
        named = [f"{key}={said}" for key, said in given if said != "AgentOptions()"]
        parts = [*map(_said, args), *named]
        one_line = ", ".join(parts)
        if not parts or (len(self.code) + len(one_line) < 90 and "\n" not in one_line):
            return Code(f"{self.code}({one_line})")
        lines = indent(",\n".join(parts), "    ")
        return Code(f"{self.code}(\n{lines},\n)")


def python_of(file: Path) -> tuple[str, bool]:
    """The code of a file, and whether it is a loop over states."""
    graph = graph_at(file)
    writers = [_Writer(flow, f"{_variable(flow.name)}_flow") for flow in _flows(graph)]
    writers.append(_Writer(graph, _variable(graph.name)))
    functions = [writer.function() for writer in writers]
    about = " ".join(str(graph.said.get("description") or "").split())
    decorated = Code("workflow")(graph.name, about, limits=_limits(graph))
    functions[-1] = f"@{decorated}\n{functions[-1]}"
    constants = {key: one for writer in writers for key, one in writer.constants.items()}
    body = "\n\n\n".join([*constants.values(), *functions])
    words = set(re.findall(r"\w+", _LITERAL.sub("", body)))
    first = f'"""{graph.name}, converted from {file.name}."""\n'
    head = [first, "from __future__ import annotations\n"]
    words |= {"Path"} if "HERE" in words else set()
    for module, names in _MODULES.items():
        wanted = sorted(set(names.split()) & words)
        head += [f"from {module} import {', '.join(wanted)}"] if wanted else []
    head += ["\nHERE = Path(__file__).parent"] if "HERE" in words else []
    return "\n".join([*head, "", "", body]), any(writer.jumps for writer in writers)


def _limits(graph: Graph) -> Code | None:
    limits, flat = graph.under("limits"), graph.flat
    many = any(node.kind in {"parallel", "for_each", "set"} for node in graph.nodes.values())
    steps = None if flat else limits.get("max_iterations", 10) * (1 + many * len(graph.nodes))
    usd = limits.get("budget_usd") if limits.get("budget_mode") == "enforce" else None
    budget = Code("Budget")(usd=usd) if usd else None
    made = Code("Limits")(max_steps=steps, timeout_s=limits.get("timeout_seconds"), budget=budget)
    return None if made.code == "Limits()" else made


def _flows(graph: Graph) -> list[Graph]:
    return [one for flow in graph.flows.values() for one in [*_flows(flow), flow]]


def _declared(one: inspect.Parameter) -> str:
    if one.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{one.name}: Any"
    kind = type_code(one.annotation)
    default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
    return f"{one.name}: {kind}{default}"


def type_code(kind: Any, inner: Callable[..., str] | None = None) -> str:
    """A type as Python, whose parts are as ``inner`` writes them."""
    inner, parts = inner or type_code, get_args(kind)
    origin = get_origin(kind)
    if origin is Annotated:
        return f"Annotated[{inner(parts[0])}, {repr(parts[1]).removeprefix('msgspec.')}]"
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin in {Union, UnionType}:
        return " | ".join(map(inner, parts))
    name = "None" if kind is NoneType else (origin or kind).__name__
    return f"{name}[{', '.join(map(inner, parts))}]" if parts else str(name)


class _Jumps(Exception):
    """The graph is not made of sequences, choices and loops."""


_SEEN = "**seen"


class _Writer(Walk):
    def __init__(self, graph: Graph, title: str) -> None:
        files = {str(node.said.get("workflow")) for node in _all_nodes(graph)}
        children = {file: Code("load")(Code(f"HERE / {file!r}")) for file in files}
        super().__init__(
            graph,
            {parameter.name: Code(parameter.name) for parameter in graph.parameters},
            children,
        )
        self.on, self.title, self.jumps = Code(""), title, False
        self.on.Agent = self._constant
        self.constants: dict[str, str] = {}
        self.written, self.known = set[str](), set[str]()

    def text(self, node: Node, template: Any, seen: Mapping[str, Any]) -> Any:
        is_file = isinstance(template, Path)
        template = template if is_file else str(template)
        said = Code(f"HERE / {str(template)!r}") if is_file else self._text(node, template)
        if not is_file and not templates.is_template(template):
            return said
        return Code("render")(said, _code(seen), lenient=self.graph.flat or None)

    def of(self, template: str, seen: Any, read: Callable[[str], Any] | None = None) -> Any:
        if not templates.is_template(template):
            return (read or templates.literal)(template)
        try:
            return Code(templates.python_of(template, lambda path: self._path(path, None)))
        except ValueError:
            args = [template, _code(seen), *([Code("scalar")] if read else [])]
            return Code("value")(*args, lenient=self.graph.flat or None)

    def _text(self, node: Node, text: str) -> Code:
        """A text as Python; one of several lines is a constant."""
        if "\n" not in text.strip() or '"""' in text or "\\" in text or text.endswith('"'):
            return Code(repr(str(text)))
        name = f"{_variable(node.name).upper()}_TEXT"
        while self.constants.get(name, (made := f'{name} = """\\\n{text}"""')) != made:
            name += "_"
        self.constants[name] = made
        return Code(name)

    def _path(self, path: list[str], node: Node | None) -> str:
        """A name with dots of a template, as Python."""
        taken = {parameter.name for parameter in self.graph.parameters}
        if path[:2] == ["workflow", "input"] and len(path) == 3 and path[2] in taken:
            return path[2]
        path = [node.name, *path] if path[0] == "output" and node is not None else path
        owner = self.graph.nodes.get(path[0])
        if self.graph.flat or owner is None or owner.name not in self.known:
            raise ValueError(path)
        rest = path[1:] if owner.kind in {"parallel", "for_each"} else path[2:]
        return _variable(owner.name) + "".join(f"[{key!r}]" for key in rest)

    def _condition(self, node: Node, route: Route) -> str:
        if node.kind == "human_gate":
            return f"{_variable(node.name)}['selected'] == {route.when!r}"
        if route.compared is not None:
            return f"compared(found, {route.compared[0]!r}, {route.compared[1]!r})"
        try:
            return templates.python_of(str(route.when), lambda path: self._path(path, node))
        except ValueError:
            output = f"{{**seen, 'output': {_variable(node.name)}}}"
            return f"holds({str(route.when)!r}, {output})"

    def record(self, node: Node, fields: Mapping[str, Any]) -> Any:
        return Code(self._typed(record_type(f"{class_name(node.name)}Answer", fields)))

    def _typed(self, kind: Any) -> str:
        """A type as Python; a ``TypedDict`` is a constant."""
        if is_typeddict(kind):
            name, types = kind.__name__, {}
            for key, field in kind.__annotations__.items():
                types[key] = self._typed(field)
            if all(key.isidentifier() and not iskeyword(key) for key in types):
                lines = [f"    {key}: {types[key]}" for key in types]
                self.constants[name] = "\n".join([f"class {name}(TypedDict):", *lines])
            else:
                given = ", ".join(f"{key!r}: {types[key]}" for key in types)
                self.constants[name] = f"{name} = TypedDict({name!r}, {{{given}}})"
            return str(name)
        return type_code(kind, self._typed)

    def _constant(self, name: str, prompt: str, **settings: Any) -> Code:
        made = _variable(name).upper()
        self.constants[made] = f"{made} = {Code('Agent')(name, prompt, **settings)}"
        return Code(made)

    def flow(self, graph: Graph, inputs: Mapping[str, Any]) -> Any:
        given = ", ".join(f"{key}={one!r}" for key, one in inputs.items())
        return Code(f"{_variable(graph.name)}_flow({given})")

    def _statements(self, node: Node, name: Any) -> list[str]:
        seen, said, variable = {_SEEN: Code("seen")}, node.said, _variable(node.name)
        lines, group = list[str](), ""
        if node.kind == "branch":
            return [f"found = look_up(seen, {said['path']!r})"]
        if node.kind == "set":
            made: Any = self.assigned(node, seen)
        elif node.kind == "parallel":
            members = [self.graph.nodes[str(one)] for one in said["agents"]]
            steps, shapes = zip(*(self.make(one, one.name, seen) for one in members), strict=True)
            ends = Code("step")(name).parallel(*steps, **mode_of(node))
            made, group = self._grouped([one.name for one in members], ends, shapes), ", group=True"
        elif node.kind == "for_each":
            member, key, group = said["member"], said.get("key_by"), ", group=True"
            one, shape = self.make(member, member.name, {_SEEN: Code("entry")})
            each, items = f"each_of_{variable}", Code(f"{variable}_items")
            head = f"def {each}(entry: dict[str, Any]) -> Step[Any]:\n"
            self.constants[each] = head + indent(f"return {one}", "    ")
            found = self.of(f"{{{{ {said['source']} }}}}", seen)
            lines = [f"{items} = {Code('entries')(found, said['as'], key or '', Code('**seen'))}"]
            mode = {"key": Code("key_of"), "max_concurrency": said.get("max_concurrent", 10)}
            mode |= mode_of(node)
            if "min_success" in mode:
                mode["min_success"] = Code(f"1 if {items} else None")
            ends = Code("step")(name).for_each(items, Code(each), **mode)
            keys = Code("list")(Code("map")(Code("key_of"), items))
            made = self._grouped(keys, ends, [shape], listed=not key or None)
        else:
            step, shape = self.make(node, name, seen)
            made = shape(Code(f"(yield from {step})"))
            lines = [] if "yield from" in repr(made) else [f"yield from {step}"]
        if self.graph.flat:
            return [*lines, f"store(seen, {node.name!r}, {made!r}, flat=True)"]
        self.known.add(node.name)
        annotated = f"{variable}: Any" if node.kind == "set" else variable
        lines.append(f"{annotated} = {_bare(repr(made))}")
        return [*lines, f"store(seen, {node.name!r}, {variable}{group})"]

    @staticmethod
    def _grouped(keys: Any, ends: Code, shapes: Sequence[Any], **more: Any) -> Code:
        said = [Code(f"lambda got: {shape(Code('got'))!r}") for shape in shapes]
        needed = [said] if any(one.code != "lambda got: got" for one in said) else []
        return Code("grouped")(keys, Code(f"(yield from {ends})"), *needed, **more)

    def _ending(self, node: Node, route: Route | None = None) -> list[str]:
        seen, said = {_SEEN: Code("seen")}, node.said
        if route is not None:
            given = {**self.graph.output, **route.output}
            if route.output:
                seen["output"] = Code(_variable(node.name))
            return ["return " + _shown({key: self.of(str(given[key]), seen) for key in given})]
        reason, own = self.text(node, said["reason"], seen), said.get("output_template")
        is_success = said["status"] == "success"
        if self.graph.flat:
            return ["return public(seen)" if is_success else f"raise failed({reason!r})"]
        about = {"status": said["status"], "reason": reason}
        texts: Mapping[str, Any] = self.graph.output if own is None else own
        data = {key: self.of(str(text), seen) for key, text in texts.items()}
        last = f"raise {Code('failed')(reason, data if own else {})!r}"
        last = f"return {_shown(data)}" if is_success else last
        return [f"store(seen, {node.name!r}, {about!r})", last]

    def function(self) -> str:
        """The code of the function that the graph is."""
        try:
            body = self._structured(self.graph.start, frozenset(), [])
        except _Jumps:
            self.jumps, self.known = True, set()
            body = self._states()
        taken = [_declared(one) for one in self.graph.parameters]
        named = [one.split(":")[0] for one in taken]
        given = [name if name.startswith("**") else f"{name!r}: {name}" for name in named]
        begin = f"{{{', '.join(given)}}}"
        if not self.graph.flat:
            begin = f"begin({begin}, {self.graph.name!r}, HERE / {self.graph.file.name!r})"
        plain = [line for line in body if not line.strip().startswith("store(seen")]
        if self.graph.flat or any("seen" in line for line in plain):
            plain = [f"seen: dict[str, Any] = {begin}", *body]
        stars = [] if not taken or taken[0].startswith("**") else ["*"]
        head = f"def {self.title}({', '.join([*stars, *taken])}) -> Steps[dict[str, Any]]:"
        return "\n".join([head, *_inside(plain), ""])

    def _structured(self, name: str, stops: frozenset[str], loops: _Loops) -> list[str]:
        """The statements from a node to those that follow it in any case."""
        if name in stops:
            return []
        if loops and name in loops[-1][:2]:
            return ["continue" if name == loops[-1][0] else "break"]
        walls = frozenset(one for loop in loops for one in loop)
        if name in self.written or name in walls:
            raise _Jumps
        inside = {one for one in self._after(name, walls) if name in self._after(one, walls)}
        if not inside:
            return self._once(self.graph.nodes[name], stops, loops)
        ways = {route.to for one in inside for route in self.graph.nodes[one].routes}
        leaves = [one for one in ways - inside - {END} if self.graph.nodes[one].kind != "terminate"]
        if len(leaves) > 1:
            raise _Jumps
        after, before = "".join(leaves), set(self.known)
        body = self._once(self.graph.nodes[name], frozenset(), [*loops, (name, after)])
        self.known = before | {name}
        number = f"n{len(loops) or ''}"
        if not after:
            return [f"{number} = 0", "while True:", *_inside([f"{number} += 1", *body])]
        lines = [f"for {number} in count(1):", *_inside(body)]
        return lines + self._structured(after, stops, loops)

    def _once(self, node: Node, stops: frozenset[str], loops: _Loops) -> list[str]:
        self.written.add(node.name)
        if node.kind == "terminate":
            return self._ending(node)
        number = "".join(f"-{{n{one or ''}}}" for one in range(len(loops)))
        name = Code(repr(f"f{node.name}{number}").replace("'f", "f'", 1)) if loops else node.name
        lines, walls = self._statements(node, name), frozenset(one for two in loops for one in two)
        known = set(self.known)
        arms = [one.to for one in node.routes if one.to not in walls | stops | {END}]
        reached = [self._after(to, walls) | {to} for to in arms]
        common = set.intersection(*reached) if len(reached) > 1 else set[str]()
        joins = [one for one in sorted(common) if common <= self._after(one, walls) | {one}]
        join = joins[0] if joins and not stops & {one.to for one in node.routes} else ""

        def body(route: Route) -> list[str]:
            self.known = set(known)
            return self._structured(route.to, stops | {join}, loops)

        lines += self._choice(node, body)
        self.known = known
        return lines + (self._structured(join, stops, loops) if join else [])

    def _after(self, name: str, walls: frozenset[str]) -> set[str]:
        """The nodes that can follow a node without passing the ``walls``."""
        found, rest = set[str](), [name]
        while rest:
            for route in self.graph.nodes[rest.pop()].routes:
                if route.to not in found | walls | {END}:
                    found.add(route.to)
                    rest.append(route.to)
        return found

    def _choice(self, node: Node, body: Callable[[Route], list[str]]) -> list[str]:
        lines, word, ends = list[str](), "if", True
        values = [one["value"] for one in node.said.get("options") or ()]
        for number, given in enumerate(node.routes):
            is_last = bool(values) and number == len(values) - 1
            route = attrs.evolve(given, when=values[number]) if values and not is_last else given
            inner = self._ending(node, route) if route.to == END else body(route)
            if route.when is None and route.compared is None:
                return lines + (inner if ends or not inner else ["else:", *_inside(inner)])
            lines += [f"{word} {self._condition(node, route)}:", *_inside(inner or ["pass"])]
            ends = ends and bool(inner) and inner[-1].startswith(_ENDS)
            word = "if" if ends else "elif"
        none = f"raise failed({f'no route of {node.name!r} holds'!r})"
        return lines + ([none] if ends else ["else:", *_inside([none])])

    def _states(self) -> list[str]:
        start, number = self.graph.start, "visits[state]"
        name = f"name = state if {number} == 1 else f'{{state}}-{{{number}}}'"
        lines = [f"state, visits = {start!r}, Counter[str]()", "while True:"]
        lines += _inside([f"{number} += 1", name, "match state:"])
        for name in [start, *sorted(self._after(start, frozenset()) - {start})]:
            node, self.known = self.graph.nodes[name], set()
            if node.kind == "terminate":
                inner = self._ending(node)
            else:
                inner = self._statements(node, Code("name"))
                self.known = {node.name}
                inner += self._choice(node, lambda route: [f"state = {route.to!r}"])
            lines += _inside(_inside([f"case {node.name!r}:", *_inside(inner)]))
        return lines


_ENDS = ("return ", "raise ", "continue", "break")
_Loops = list[tuple[str, str]]
"""The loops around a node: the first node of each, and the one that follows it."""


def _bare(code: str) -> str:
    """The code without the parentheses around it, if it is a ``yield from`` and nothing else."""
    depth = 0
    for number, mark in enumerate(code if code.startswith("(yield from") else ""):
        depth += (mark == "(") - (mark == ")")
        if depth == 0:
            return code[1:-1] if number == len(code) - 1 else code
    return code


def _inside(lines: Sequence[str]) -> list[str]:
    return [indent(line, "    ") for line in lines]


def _said(given: Any) -> str:
    is_class = isinstance(given, type)
    return "HERE" if isinstance(given, Path) else given.__name__ if is_class else repr(given)


def _shown(found: Mapping[str, Any]) -> str:
    """A mapping, on a line for each key."""
    return (
        "{\n" + "".join(indent(f"{key!r}: {one!r},\n", "    ") for key, one in found.items()) + "}"
        if found
        else "{}"
    )


def _code(seen: Mapping[str, Any]) -> Code:
    """What templates see, as Python."""
    given = [repr(one) if key == _SEEN else f"{key!r}: {one!r}" for key, one in seen.items()]
    return Code(given[0] if len(given) == 1 else "{**" + ", ".join(given) + "}")


def _variable(name: str) -> str:
    made = re.sub(r"\W", "_", name)
    made = made if made[:1].isalpha() else f"node_{made}"
    return f"{made}_" if iskeyword(made) or made in _TAKEN else made


def _all_nodes(graph: Graph) -> list[Node]:
    return [
        *graph.nodes.values(),
        *[node.said["member"] for node in graph.nodes.values() if "member" in node.said],
    ]
