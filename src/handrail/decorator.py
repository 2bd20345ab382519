"""``@workflow``, and the ``Workflow`` that it makes of a generator function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, overload

from handrail.engine.outside import refuse_inside_loop
from handrail.errors import WrongUse
from handrail.executor import Executor
from handrail.model.definition import REQUIRED, WorkflowDefinition, WorkflowParameter, define
from handrail.model.described import text_of
from handrail.model.paths import check_name
from handrail.model.policy import Limits
from handrail.model.results import WorkflowResult
from handrail.steps.verbs import Step

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A workflow: call it to run it with a default executor, or pass it to your own executor."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self._definition = definition
        functools.update_wrapper(self, definition.function)

    @property
    def definition(self) -> WorkflowDefinition:
        """Name, description, parameters and function. Captured once, but for types of parameters
        that are defined further down.
        """
        known = self._definition
        if known.unknown_types:
            self._definition = define(known.function, known.name, known.description, known.limits)
        return self._definition

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowResult[R]:
        """Run it to its end with a default executor, from code without an event loop.

        Raises:
            InsideEventLoop: this thread runs an event loop; the text names ``.run``.
            TypeError: the arguments do not fit.
        """
        name = self._definition.name
        refuse_inside_loop(f"{name}(...)", f"Write: await {name}.run(...).")
        return Executor().run_sync(self, *args, **kwargs)

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowResult[R]:
        """Run it to its end with a default executor."""
        return await Executor().run(self, *args, **kwargs)

    def describe(self) -> dict[str, Any]:
        """Its name, description, parameters, and what its source shows, as JSON-safe data.

        ``schema`` is the JSON schema of its inputs. ``steps`` lists each step, ``body`` has them in
        their loops, branches, groups and bodies; ``is_whole`` is false if the source of a helper,
        or the name of a step, cannot be seen.
        """
        from handrail.static.chain import kind_of
        from handrail.static.may_run import is_whole, possible_steps
        from handrail.static.outline import as_data, outline
        from handrail.static.source import SourceUnavailable, source_of
        from handrail.typed.jsonsafe import json_safe

        definition = self.definition
        try:
            nodes = outline(source_of(definition.function)).nodes
            steps: list[dict[str, Any]] = [
                {
                    "path": found.path,
                    "kind": kind_of(found.verb),
                    "line": found.line,
                    "literal": found.literal,
                }
                for found in possible_steps(nodes)
            ]
            body, whole = as_data(nodes), is_whole(nodes)
        except SourceUnavailable as error:
            steps = [{"path": f"({text_of(error)})", "kind": "unknown"}]
            body, whole = [], False
        return {
            "name": definition.name,
            "description": definition.description,
            "module": definition.function.__module__,
            "parameters": [
                {
                    "name": parameter.name,
                    "annotation": _annotation(parameter.annotation),
                    "description": parameter.description,
                    "required": parameter.required,
                    "default": None
                    if parameter.default is REQUIRED
                    else json_safe(parameter.default),
                    "kind": parameter.kind.name.lower(),
                }
                for parameter in definition.parameters
            ],
            "schema": _inputs_schema(definition.parameters),
            "steps": steps,
            "body": body,
            "is_whole": whole,
        }

    def to_mermaid(self) -> str:
        """A Mermaid flowchart of its source, without running it.

        Raises:
            SourceUnavailable: the source cannot be found.
        """
        from handrail.static.mermaid import to_mermaid
        from handrail.static.source import source_of

        return to_mermaid(source_of(self._definition.function))

    def __repr__(self) -> str:
        return f"<workflow {self._definition.name!r}>"


"""Verbs that results and events record under the name of their untyped twin."""


def _annotation(annotation: Any) -> str | None:
    if annotation is inspect.Parameter.empty:
        return None
    from handrail.typed.schema import describe_type

    return annotation if isinstance(annotation, str) else describe_type(annotation)


def _inputs_schema(parameters: Iterable[WorkflowParameter]) -> dict[str, Any]:
    """The JSON schema of the inputs: an object with a property for each."""
    from handrail.typed.jsonsafe import json_safe
    from handrail.typed.schema import hoisted, open_schema

    properties: dict[str, Any] = {}
    required: list[str] = []
    more = False
    for parameter in parameters:
        known = parameter.annotation not in {inspect.Parameter.empty, REQUIRED}
        schema = open_schema(parameter.annotation) if known else {}
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            more = True
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            schema = {"type": "array", "items": schema}
        if parameter.description:
            schema = {**schema, "description": parameter.description}
        if parameter.required:
            required.append(parameter.name)
        elif parameter.default is not REQUIRED:
            schema = {**schema, "default": json_safe(parameter.default)}
        properties[parameter.name] = schema
    return hoisted(
        {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": more,
        }
    )


Body = Callable[P, Generator[Step[Any], Any, R]]


@overload
def workflow(function: Callable[P, Generator[Step[Any], Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    name: str, description: str | None = None, /, *, limits: Limits | None = None
) -> Callable[[Callable[P, Generator[Step[Any], Any, R]]], Workflow[P, R]]: ...
@overload
def workflow(
    name: str, /, *, description: str, limits: Limits | None = None
) -> Callable[[Callable[P, Generator[Step[Any], Any, R]]], Workflow[P, R]]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    description: str | None = None,
    limits: Limits | None = None,
) -> Callable[[Callable[P, Generator[Step[Any], Any, R]]], Workflow[P, R]]: ...
def workflow(
    function: Any = None,
    about: str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    limits: Limits | None = None,
) -> Any:
    """Make a workflow of a generator function: ``@workflow``, ``@workflow("name")``,
    ``@workflow("name", "description")``, ``@workflow(name=..., description=...)``.

    The name defaults to the function's, the description to the docstring's first line.
    ``limits`` bound each run of the workflow, where its executor sets no such limit. If it runs as
    a child of another workflow, the limits of that run apply instead.

    Raises:
        TypeError: this is no sync generator function; the text says what to write instead.
    """
    if isinstance(function, str):
        if name is not None:
            raise WrongUse(f"@workflow got two names, {function!r} and {name!r}")
        function, name = None, function
    if about is not None:
        if not isinstance(about, str) or description is not None or name is None:
            raise WrongUse(f'@workflow("name", "description") takes two texts, got {about!r}')
        description = about
    if limits is not None and not isinstance(limits, Limits):
        raise WrongUse(f"@workflow(limits=) takes Limits(...), got {limits!r}")
    if name is not None:
        check_name(name, "workflow")
    if function is not None:
        return _make_workflow(function, name, description, limits)

    def decorate(decorated: Any) -> Workflow[..., Any]:
        return _make_workflow(decorated, name, description, limits)

    return decorate


def _make_workflow(
    function: Any, name: str | None, description: str | None, limits: Limits | None
) -> Workflow[..., Any]:
    _check_function(function)
    said = description if description is not None else _first_line(function)
    name = name or check_name(function.__name__, "workflow")
    return Workflow(define(function, name, said, limits))


def _first_line(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return text.strip().partition("\n")[0]


def _check_function(function: Any) -> None:
    if isinstance(function, Workflow):
        raise WrongUse(f"{function.definition.name!r} is a workflow already; use @workflow once")
    if not callable(function) or inspect.isclass(function):
        raise WrongUse(f"@workflow decorates a generator function, got {function!r}")
    if isinstance(function, functools.partial):
        raise WrongUse(
            f"@workflow decorates a generator function, got {function!r}, which no record can "
            f"name. Decorate the function itself, and pass what you bound as inputs."
        )
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, (staticmethod, classmethod)) or _is_method(function):
        raise WrongUse(
            f"@workflow cannot decorate the method {name}: it does not bind self. Write a function "
            f"of the module, and give it what it needs as an input."
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise WrongUse(
            f"{name} is async, and a workflow is a plain generator function. Write `def`, and "
            f'`yield from step("name").call(async_function)` for what is async.'
        )
    if not inspect.isgeneratorfunction(function):
        raise WrongUse(
            f"{name} yields no step, so it is not a workflow. A workflow is a generator function: "
            f'write `yield from step("name").call(function)` in its body.'
        )


def _is_method(function: Any) -> bool:
    """True for a function of a class body whose first parameter is ``self`` or ``cls``."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(function).parameters), "")
    return first in {"self", "cls"}
