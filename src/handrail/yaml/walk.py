"""Walks a graph: a generator that yields the steps of its nodes, one node after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from handrail import Agent, AgentOptions, Backoff, Choice, Step, Steps, WorkflowError, scope, step
from handrail.yaml import shapes, templates
from handrail.yaml.graph import END, Graph, Node, Route, record_type
from handrail.yaml.reading import scalar
from handrail.yaml.tables import BACKENDS

Seen: TypeAlias = Mapping[str, Any]
Body: TypeAlias = Generator[Step[Any], Any, Any]
Made: TypeAlias = tuple[Any, Callable[[Any], Any]]
"""A step, and what the node's output is for the step's."""
JUDGE = (
    "Does the answer meet the criteria?\n\n{%% raw %%}%s{%% endraw %%}\n\nAnswer:\n\n{{ answer }}\n"
)
_MADE_OF = (step, scope, Agent, AgentOptions, Backoff, Choice)
_OF_NODES = (templates.TemplateError, WorkflowError, TypeError, ValueError, LookupError, OSError)
"""What can go wrong at a node, and is told with its line."""
_OF_GROUPS = frozenset({"output", "outputs", "errors", "count"})


def walk(graph: Graph, inputs: Seen, children: Seen) -> Steps[Any]:
    """The result of a graph; ``children``: the workflows of other files by the names it has."""
    return (yield from Walk(graph, inputs, children).run())


def backend_of(said: Seen) -> tuple[str | None, str | None]:
    """The backend and the model that a node, or a file's runtime, names."""
    provider = said.get("provider")
    backend = BACKENDS.get(provider["name"] if isinstance(provider, Mapping) else str(provider))
    model = said.get("model") or said.get("default_model")
    prefixed = model and backend == "api" and ":" not in model
    return backend, f"openai:{model}" if prefixed else model


class Walk:
    """One walk, and the values that it has met. ``on``: the functions that its steps are made of;
    who writes code instead of running it has others.
    """

    on: Any = SimpleNamespace(**{**vars(shapes), **{one.__name__: one for one in _MADE_OF}})

    def __init__(self, graph: Graph, inputs: Seen, children: Seen) -> None:
        self.graph, self.children, self.inputs = graph, children, inputs
        self.seen = dict(inputs) if graph.flat else shapes.begin(inputs, graph.name, graph.file)
        self.visits = Counter[str]()
        self.used = 0

    def run(self) -> Body:
        """Yield the steps of nodes until one leads to the end; the workflow's result."""
        node = self.graph.nodes[self.graph.start]
        while True:
            try:
                self._count(1)
                if node.kind == "terminate":
                    return self._end(node)
                output = yield from self._visit(node)
                self._store(node, output)
                route = self._route(node, output)
                if route.to == END:
                    given = {**self.graph.output, **route.output}
                    seen = {**self.seen, "output": output}
                    return {key: self.of(str(text), seen) for key, text in given.items()}
            except _OF_NODES as error:
                where = f"{self.graph.file}:{node.said.line}: node {node.name!r}"
                raise WorkflowError(f"{where}: {error}") from error
            node = self.graph.nodes[route.to]

    def _count(self, more: int) -> None:
        self.used += more
        most = self.graph.under("limits").get("max_iterations", 10)
        if not self.graph.flat and self.used > most:
            raise WorkflowError(f"limits.max_iterations={most} is reached")

    def _store(self, node: Node, output: Any) -> None:
        is_group = node.kind in {"parallel", "for_each"}
        shapes.store(self.seen, node.name, output, group=is_group, flat=self.graph.flat)

    def seen_by(self, node: Node) -> Seen:
        """What the templates of a node may use, by the file's ``context: mode:``."""
        mode = self.graph.under("context").get("mode") or "accumulate"
        if self.graph.flat or mode == "accumulate" or node.kind in {"human_gate", "terminate"}:
            return self.seen
        last = self.seen["context"]["history"][-1:] if mode == "last_only" else []
        found = deepcopy({key: self.seen[key] for key in ("workflow", "context", *last)})
        if mode == "last_only":
            return found
        if node.kind == "agent":
            found["workflow"]["input"] = {}
        for reference in map(str, node.said.get("input") or ()):
            path = reference.rstrip("?").split(".")
            if path[0] != "workflow" and path[1:2] and path[1] not in _OF_GROUPS:
                path.insert(1, "output")
            got = shapes.look_up(self.seen, ".".join(path))
            if got is shapes.MISSING and not reference.endswith("?"):
                raise WorkflowError(f"its input {reference!r} is not there when it begins")
            if got is not shapes.MISSING or path[0] == "workflow":
                at: dict[str, Any] = found
                for name in path[:-1]:
                    at = at.setdefault(name, {})
                at[path[-1]] = None if got is shapes.MISSING else deepcopy(got)
        return found

    def of(self, template: str, seen: Seen, read: Callable[[str], Any] | None = None) -> Any:
        """The value of a template; ``read`` is for that of a text."""
        return templates.value(template, seen, read, lenient=self.graph.flat)

    def text(self, node: Node, template: str | Path, seen: Seen) -> str:
        """The text of a node's template, or of that in a file beside the workflow's."""
        folder = node.said["folder"]
        is_file = isinstance(template, Path)
        given = (folder / template).read_text("utf-8") if is_file else str(template)
        return templates.render(given, seen, folder=folder, lenient=self.graph.flat)

    def _visit(self, node: Node) -> Body:
        seen = self.seen_by(node)
        match node.kind:
            case "branch":
                return {}
            case "set":
                return self.assigned(node, seen)
            case "parallel":
                return (yield from self._parallel(node))
            case "for_each":
                return (yield from self._for_each(node, seen))
            case _:
                made, output_of = self.make(node, self._name(node), seen)
                return output_of((yield from made))

    def _name(self, node: Node) -> str:
        """The node's name; when it is visited again, with the number of the visit."""
        self.visits[node.name] += 1
        count, mark = self.visits[node.name], "-"
        while f"{node.name}{mark}{count}" in self.graph.nodes:
            mark += "-"
        return node.name if count == 1 else f"{node.name}{mark}{count}"

    def make(self, node: Node, name: str, seen: Seen) -> Made:
        """The step of a node that has one."""
        makers = {
            "agent": self.agent, "script": self._script, "call": self._call,
            "workflow": self._child, "human_gate": self._gate, "wait": self._wait,
        }  # fmt: skip
        return makers[node.kind](node, name, seen)

    def agent(self, node: Node, name: str, seen: Seen) -> Made:
        """The step of an agent, whose prompt is rendered by the rules of its file."""
        said, limit, retry = (
            node.said,
            node.said.get("timeout_seconds"),
            node.said.get("retry") or {},
        )
        fields = None if said.get("output_mode") == "raw" else said.get("output")
        prompt, judge = said["prompt"], said.get("validator") or {}
        if self.graph.flat:
            args = {key: self.text(node, text, seen) for key, text in said.get("args", {}).items()}
            minutes = round(limit / 60) if limit else "unbounded"
            about = {"node_timeout_s": limit or "unbounded", "node_timeout_min": minutes}
            seen = {**seen, **args, **about}
        else:
            prompt = "\n\n".join(map(str, [*(self.graph.said.get("instructions") or ()), prompt]))
        output = str if fields is None else self.record(node, fields)
        made = self.on.step(name).agent(
            self.on.Agent(node.name, "{{ prompt }}", output=output, backend=backend_of(said)[0]),
            {"prompt": self.text(node, prompt, seen)},
            options=self._options(node, seen),
            check=self._judge(node, judge) if judge else None,
        )
        made = made.timeout(limit) if limit else made
        if retry.get("max_attempts", 1) > 1:
            factor = 1.0 if retry.get("backoff") == "fixed" else 2.0
            backoff = self.on.Backoff(retry.get("delay_seconds", 2.0), factor)
            made = made.retry(retry["max_attempts"], backoff=backoff)
        if self.graph.flat:
            return made.answer().default(said["default"]), lambda got: got if fields else {}
        return made.answer(), lambda got: {"result": got} if fields is None else got

    def _judge(self, node: Node, said: Seen) -> Any:
        prompt, model = JUDGE % said["criteria"], said.get("model")
        return self.on.Agent(f"{node.name}-check", prompt, output=self.on.Verdict, model=model)

    def record(self, node: Node, fields: Seen) -> Any:
        """The type of an answer."""
        return record_type(node.name, fields)

    def _options(self, node: Node, seen: Seen) -> Any:
        said, folder, tools = node.said, node.said.get("working_dir"), node.said.get("tools")
        given = {"model": backend_of(said)[1], "system_prompt": said.get("system_prompt")}
        given["effort"] = (said.get("reasoning") or {}).get("effort")
        texts = {key: self.text(node, text, seen) for key, text in given.items() if text}
        added = said.get("add_dirs")
        return self.on.AgentOptions(
            cwd=self.on.beside(said["folder"], self.text(node, folder, seen)) if folder else None,
            add_dirs=self.on.folders(self.of(added, seen)) if added else None,
            tools=None if tools is None else tuple(tools),
            max_turns=said.get("max_agent_iterations"),
            **texts,
        )

    def _script(self, node: Node, name: str, seen: Seen) -> Made:
        said, stdin, folder = node.said, node.said.get("stdin"), node.said.get("working_dir")
        env, output = said.get("env") or {}, said.get("output")
        words = [said["command"], *(said.get("args") or ())]
        made = self.on.step(name).command(
            [self.text(node, str(word), seen) for word in words],
            cwd=self.text(node, folder, seen) if folder else None,
            env={key: self.text(node, str(env[key]), seen) for key in env},
            stdin=None if stdin is None else self.text(node, stdin, seen),
            check=self.graph.flat,
        )
        made = made.timeout(said["timeout"]) if said.get("timeout") else made
        if self.graph.flat:
            return made, lambda done: self.on.fields_of(done, *said["keys"])
        needed = [key for key, field in (output or {}).items() if field.get("required", True)]
        return made, lambda done: self.on.printed(done, *needed, strict=output is not None)

    def _call(self, node: Node, name: str, seen: Seen) -> Made:
        wraps, given = node.said["wrap"], node.said.get("args") or {}
        args = {key: self.of(str(text), seen) for key, text in given.items()}
        made = self.on.step(name).call(getattr(self.on, node.said["fn"]), **args)
        return made, lambda got: {key: {to: got} if to else got for key, to in wraps.items()}

    def _child(self, node: Node, name: str, seen: Seen) -> Made:
        said, given = node.said, node.said.get("input_mapping")
        inputs = dict(self.inputs)
        if given is not None or self.graph.flat:
            inputs = {key: self.of(str(text), seen) for key, text in (given or {}).items()}
        if "flow" in said:
            made = self.on.scope(name, self.flow(self.graph.flows[said["flow"]], inputs))
            return made, lambda got: {key: got.get(key) for key in said["keys"]}
        made = self.on.step(name).subworkflow(self.children[said["workflow"]], inputs)
        return made, lambda got: got.value

    def flow(self, graph: Graph, inputs: Seen) -> Any:
        """The steps of a flow of the same file."""
        given = {parameter.name: parameter.default for parameter in graph.parameters[:-1]}
        return walk(graph, {**given, **inputs}, self.children)

    def _gate(self, node: Node, name: str, seen: Seen) -> Made:
        asked = {one["value"]: one.get("prompt_for") or "" for one in node.said["options"]}
        choices = {
            one["label"]: self.on.Choice(one["value"], prompt_for=asked[one["value"]])
            for one in node.said["options"]
        }
        question = self.text(node, node.said["prompt"], seen)
        return self.on.step(name).ask(question, choices=choices), self.on.selected

    def _wait(self, node: Node, name: str, seen: Seen) -> Made:
        pause = self.on.seconds(self.text(node, str(node.said["duration"]), seen))
        return self.on.step(name).sleep(pause), lambda _: {"waited_seconds": pause}

    def assigned(self, node: Node, seen: Seen) -> Any:
        """The output of a ``set``."""
        kind, values = node.said.get("output_type") or "auto", node.said.get("values") or {}
        if "value" not in node.said:
            return {key: self.of(str(values[key]), seen, scalar) for key in values}
        text = str(node.said["value"])
        return self.text(node, text, seen) if kind == "string" else self.of(text, seen, scalar)

    def _parallel(self, node: Node) -> Body:
        members = [self.graph.nodes[str(name)] for name in node.said["agents"]]
        self._count(len(members) - 1)
        made = [self.make(member, member.name, self.seen_by(member)) for member in members]
        ends = yield from step(self._name(node)).parallel(
            *(one for one, _ in made), **mode_of(node)
        )
        return shapes.grouped(
            [member.name for member in members], ends, [shape for _, shape in made]
        )

    def _for_each(self, node: Node, seen: Seen) -> Body:
        said, member = node.said, node.said["member"]
        items = shapes.look_up(self.seen, str(said["source"]))
        if not isinstance(items, Sequence):
            raise WorkflowError(f"{said['source']!r} is no list")
        entries = shapes.entries(items, said["as"], said.get("key_by") or "")
        around = self.seen_by(member) if member.said.get("input") else seen
        shape = list[Callable[[Any], Any]]()

        def body(entry: dict[str, Any]) -> Any:
            made, output_of = self.make(member, member.name, {**around, **entry})
            shape[:] = [output_of]
            return made

        self._count(len(entries) - 1)
        ends = yield from step(self._name(node)).for_each(
            entries, body, key=shapes.key_of, max_concurrency=said.get("max_concurrent", 10),
            **mode_of(node, bool(entries)),
        )  # fmt: skip
        keys = [entry["_key"] for entry in entries]
        return shapes.grouped(keys, ends, shape, listed=not said.get("key_by"))

    def _route(self, node: Node, output: Any) -> Route:
        if node.kind == "human_gate":
            values = [one["value"] for one in node.said["options"]]
            return node.routes[values.index(output["selected"])]
        value = shapes.look_up(self.seen, node.said["path"]) if node.kind == "branch" else None
        for route in node.routes:
            if route.compared is None:
                if route.when is None or templates.holds(
                    route.when, {**self.seen, "output": output}
                ):
                    return route
            elif shapes.compared(value, *route.compared):
                return route
        raise WorkflowError("none of its routes holds")

    def _end(self, node: Node) -> Any:
        said, own = node.said, node.said.get("output_template")
        if self.graph.flat and said["status"] == "success":
            return shapes.public(self.seen)
        reason = self.text(node, said["reason"], self.seen)
        self._store(node, {"status": said["status"], "reason": reason})
        given = self.graph.output if own is None else own
        found = {key: self.of(str(text), self.seen) for key, text in given.items()}
        if said["status"] == "success":
            return found
        raise shapes.failed(reason, found if own else None)


def mode_of(node: Node, least: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
    """How a group takes failures; one that continues fails if all members do."""
    mode = node.said.get("failure_mode") or "fail_fast"
    if mode != "continue_on_error":
        return {"on_error": mode}
    return {"on_error": "continue", **({"min_success": 1} if least else {})}
