"""The rule that names which the code reads exist: steps' outputs, inputs, stages.

It checks functions of the context: those in ``.when``, an arm, an agent's context, a handler or a
rollback. A name counts as known if any workflow of the text has it, because a sub-workflow sees the
steps of the workflow around it. It reports no step if the text does not show all steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from handrail.errors import did_you_mean
from handrail.static.chain import BODIES, StepName, argument, calls_of, read_chain
from handrail.static.lint_steps import Mistake, Place, functions_passed, mistake
from handrail.static.may_run import is_whole, steps_of
from handrail.static.outline import outline_of
from handrail.static.source import FunctionNode
from handrail.static.symbols import Symbols

_NO_CONTEXT = frozenset({"call", "command", *BODIES})
"""Verbs whose functions do not get a context."""


def read_mistakes(
    places: Sequence[Place], symbols: Symbols, stages: Iterable[str] = ()
) -> Iterator[Mistake]:
    """Each literal name of a step or input that the code reads and that does not exist.

    ``stages`` are those of the project. Where a ``validate`` names stages from elsewhere, a name
    passes unless it is close to a known one.
    """
    workflow = places[0].region
    assert isinstance(workflow, FunctionNode)
    for node, kind, name in _reads(places, symbols):
        if kind == "inputs":
            yield from _input_mistakes(workflow, node, name)
        else:
            yield from _step(symbols, node, name, [*stages, *_stages_of_executors(symbols)])


def _reads(
    places: Sequence[Place], symbols: Symbols
) -> Iterator[tuple[ast.expr, str, ast.Constant]]:
    seen: set[ast.AST] = set()
    for place in places:
        for _, whole in place.steps():
            for function in _functions_of_context(whole, symbols):
                if function not in seen:
                    seen.add(function)
                    yield from _reads_of(function)


def _functions_of_context(whole: ast.expr, symbols: Symbols) -> Iterator[ast.Lambda | FunctionNode]:
    chain = read_chain(whole, symbols)
    if chain is None:
        return
    calls = [call for _, call in chain.modifiers]
    if chain.call is not None and chain.verb not in _NO_CONTEXT:
        calls.append(chain.call)
    for call in calls:
        for arg in (*call.args, *(keyword.value for keyword in call.keywords)):
            arm = arg.elts[0] if isinstance(arg, ast.Tuple) and arg.elts else arg
            found = functions_passed(arm, symbols) if isinstance(arm, ast.Lambda | ast.Name) else ()
            for function in found:
                if isinstance(function, ast.Lambda | FunctionNode) and function.args.args:
                    yield function


def _reads_of(
    function: ast.Lambda | FunctionNode,
) -> Iterator[tuple[ast.expr, str, ast.Constant]]:
    context = function.args.args[0].arg
    for node in ast.walk(function):
        match node:
            case (
                ast.Call(
                    func=ast.Attribute(ast.Name(id=owner), "output"),
                    args=[ast.Constant(value=str()) as name, *_],
                )
                | ast.Call(
                    func=ast.Attribute(ast.Name(id=owner), "result"),
                    args=[ast.Constant(value=str()) as name],
                )
            ) if owner == context:
                yield node, "results", name
            case (
                ast.Subscript(
                    value=ast.Attribute(ast.Name(id=owner), "inputs" | "results" as held),
                    slice=ast.Constant(value=str()) as name,
                )
                | ast.Call(
                    func=ast.Attribute(
                        ast.Attribute(ast.Name(id=owner), "inputs" | "results" as held), "get"
                    ),
                    args=[ast.Constant(value=str()) as name, *_],
                )
                | ast.Compare(
                    left=ast.Constant(value=str()) as name,
                    ops=[ast.In() | ast.NotIn()],
                    comparators=[ast.Attribute(ast.Name(id=owner), "inputs" | "results" as held)],
                )
            ) if owner == context:
                yield node, held, name
            case _:
                pass


def _input_mistakes(
    workflow: FunctionNode, node: ast.expr, name: ast.Constant
) -> Iterator[Mistake]:
    given = workflow.args
    if given.kwarg is not None:
        return
    known = [posonlyarg.arg for posonlyarg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if name.value not in known:
        message = f"workflow {workflow.name!r} has no input {name.value!r}"
        hint = did_you_mean([str(name.value)], known) or f" It has: {', '.join(known) or 'none'}."
        yield mistake("HR110", node, message, hint.strip())


def _step(
    symbols: Symbols, node: ast.expr, name: ast.Constant, stages: Sequence[str]
) -> Iterator[Mistake]:
    known, is_all = _known_steps(symbols)
    sought = str(name.value).removeprefix("/").partition("/")[0]
    if known is None or any(one.matches(sought) for one in known):
        return
    hint = did_you_mean([sought], [*(one.text for one in known if one.literal), *stages])
    if is_all or (hint and sought not in stages):
        yield mistake("HR110", node, f"no step is named {sought!r}", hint.strip())


def _known_steps(symbols: Symbols) -> tuple[list[StepName] | None, bool]:
    """The names of all steps of the text's workflows, and whether all stages are among them.

    None in place of the names if the text does not show all steps.
    """
    found: list[StepName] = []
    is_all = True
    for _, function in symbols.functions:
        if not symbols.is_workflow(function):
            continue
        nodes = outline_of(function, symbols).nodes
        if not is_whole(nodes):
            return None, False
        for step in steps_of(nodes):
            if step.verb == "validate":
                stages = _stages(step.call)
                is_all = is_all and stages is not None
                found += [StepName(stage, (stage,)) for stage in stages or ()]
            found.append(step.names[-1])
    return found, is_all


def _stages(call: ast.Call | None) -> list[str] | None:
    """The stages that a ``validate`` names; None if they are not all literals."""
    match argument(call, 0, "stages"):
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            names = [part.value for part in parts if isinstance(part, ast.Constant)]
            return [str(name) for name in names] if len(names) == len(parts) else None
        case _:
            return None


def _stages_of_executors(symbols: Symbols) -> Iterator[str]:
    """The literal names of stages that the text gives to executors (``stages=``)."""
    for node in ast.walk(symbols.tree):
        if isinstance(node, ast.Call):
            given = next(
                (keyword.value for keyword in node.keywords if keyword.arg == "stages"), None
            )
            if isinstance(given, ast.Dict):
                yield from (str(k.value) for k in given.keys if isinstance(k, ast.Constant))


def stage_mistakes(symbols: Symbols, configured: Iterable[str]) -> Iterator[Mistake]:
    """Each stage that a ``validate`` names and that is unknown, but close to a known one.

    Known are the stages ``configured`` for the project, and those that the text gives to executors.
    Another executor may have more, so a name passes if it is close to no known one.
    """
    known = [*configured, *_stages_of_executors(symbols)]
    for call, _ in calls_of({"validate"}, symbols):
        for stage in _stages(call) or ():
            near = did_you_mean([stage], known) if stage not in known else ""
            if near:
                yield mistake("HR110", call, f"no stage is named {stage!r}", near.strip())
