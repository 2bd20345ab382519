"""``handrail check``: the lint, for people and for CI."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from handrail import addons
from handrail.agents.agent import Agent, check_launchable
from handrail.agents.prompt import variables_of
from handrail.cli.exits import Exit
from handrail.cli.listing import python_files, read_source
from handrail.cli.options import Json
from handrail.cli.target import load, split
from handrail.errors import DefinitionError, did_you_mean
from handrail.model.agent_options import (
    NO_OPTIONS,
    NO_SETTINGS,
    AgentOptions,
    AgentSettings,
    with_model,
)
from handrail.project import configured_stages
from handrail.sinks.console_text import counted
from handrail.static.chain import Chain, argument, calls_of, name_of
from handrail.static.lint import Finding, check_module
from handrail.static.lint_reads import stage_mistakes
from handrail.static.lint_steps import Mistake, mistake
from handrail.static.mermaid import to_mermaid
from handrail.static.source import source_of
from handrail.static.symbols import Symbols
from handrail.static.text import to_text


def check(paths: Annotated[list[Path], Parameter()], /, *, as_json: Json = False) -> int:
    """Look for mistakes in workflows without importing them. Exit code 1 if there are any.

    Parameters
    ----------
    paths
        Files, or folders to search recursively.
    as_json
        Print a JSON list of findings.
    """
    files = [file for path in paths for file in python_files(path)]
    found = [finding for file in files for finding in findings_in(file)]
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], ensure_ascii=False, indent=2))
    else:
        for finding in found:
            print(finding)
        print(_summary(len(found), len(files)))
    return Exit.FAILED if found else Exit.SUCCEEDED


def findings_in(file: Path) -> Iterator[Finding]:
    """The findings in one file; a file that does not parse is itself a finding."""
    if (reader := addons.reader_of(file)) is not None:
        yield from reader.findings(file)
        return
    try:
        text = read_source(file)
        stages = configured_stages(file.parent)

        def more(symbols: Symbols) -> Iterator[Mistake]:
            yield from agent_mistakes(symbols)
            yield from stage_mistakes(symbols, stages)

        yield from check_module(text, str(file), more, stages)
    except (SyntaxError, UnicodeDecodeError) as error:
        yield Finding("HR100", f"the file does not parse: {error}", str(file), 1, 1)


def _summary(findings: int, files: int) -> str:
    found = counted(findings, "finding") if findings else "nothing found"
    return f"{found} in {counted(files, 'file')}"


def graph(
    target: str,
    /,
    *,
    form: Annotated[Literal["mermaid", "text"], Parameter(name="--format")] = "mermaid",
) -> int:
    """Draw a workflow from its source without running it.

    Parameters
    ----------
    target
        `file.py:name` or `module:name`.
    form
        A Mermaid flowchart, or a tree for the terminal.
    """
    place = Path(split(target)[0])
    if (reader := addons.reader_of(place)) is not None:
        print(reader.chart(place, form))
        return Exit.SUCCEEDED
    source = source_of(load(target).definition.function)
    print((to_mermaid(source) if form == "mermaid" else to_text(source)).rstrip("\n"))
    return Exit.SUCCEEDED


_LAUNCHES = frozenset({"agent", "generate"})
_OF_STEPS = ("backend", "model", "options")
_OF_AGENTS = (*_OF_STEPS, "fallback")


class _NotLiteral(Exception):
    """An argument is no literal in the source."""


def agent_mistakes(symbols: Symbols) -> Iterator[Mistake]:
    """The agents of a module, and the settings of its steps for them, that a launch would refuse.

    Only literals count: a backend's name, ``AgentOptions`` of literals, an agent whose name stands
    for nothing else. A run may replace an agent by one that is right. So in doubt there is no
    finding, and the run reports the mistake when it starts.
    """
    yield from _prompt_mistakes(symbols)
    for node in ast.walk(symbols.tree):
        if isinstance(node, ast.Call) and _is_agent(node, symbols):
            yield from _agent_mistakes_of(node, partial(_check_agent, node, symbols))
    for call, chain in calls_of(_LAUNCHES, symbols):
        yield from _agent_mistakes_of(call, partial(_check_step, call, chain, symbols))


def _agent_mistakes_of(node: ast.Call, check: Callable[[], None]) -> Iterator[Mistake]:
    """The mistake of an agent, or of a step with one, if ``check`` refuses it."""
    try:
        check()
    except DefinitionError as error:
        yield mistake("HR109", node, str(error).rstrip("."), "")
    except Exception:  # noqa: BLE001  # the run reports any other error in it
        return


def _check_agent(node: ast.Call, symbols: Symbols) -> None:
    check_launchable(_build_agent(node, symbols), NO_SETTINGS, lambda: NO_SETTINGS)


def _prompt_mistakes(symbols: Symbols) -> Iterator[Mistake]:
    """Each variable of a literal prompt that the literal context of its step lacks."""
    for node, chain in calls_of({"agent"}, symbols):
        agent, given = _agent_call(chain.subject, symbols), _context_keys(node, symbols)
        prompt = None if agent is None else _resolve_name(argument(agent, 1, "prompt"), symbols)
        if given is None or not isinstance(prompt, ast.Constant):
            continue
        for name in sorted(variables_of(str(prompt.value)) - given):
            hint = did_you_mean([name], sorted(given)).strip() or "Add it to the context."
            message = f"the prompt of {_agent_name(agent)} needs {name!r}, which the context lacks"
            yield mistake("HR110", node, message, hint)


def _agent_name(agent: ast.Call | None) -> str:
    name = argument(agent, 0, "name")
    return repr(name.value) if isinstance(name, ast.Constant) else "the agent"


def _resolve_name(node: ast.expr | None, symbols: Symbols) -> ast.expr | None:
    """The value of a name that is assigned once and only read, else None; other nodes as is."""
    if not isinstance(node, ast.Name):
        return node
    values = symbols.values_of(node)
    uses = [
        one for one in ast.walk(symbols.tree) if isinstance(one, ast.Name) and one.id == node.id
    ]
    stored = [use for use in uses if isinstance(use.ctx, ast.Store)]
    if len(values) != 1 or len(stored) != 1:
        return None
    if isinstance(values[0], ast.Constant):
        return values[0]
    around = (symbols.parents.get(one) for one in uses if one is not stored[0])
    return values[0] if all(_only_reads(one) for one in around) else None


def _only_reads(parent: ast.AST | None) -> bool:
    """True if the value is passed to a step, or an item of it is looked up."""
    match parent:
        case ast.Call(func=ast.Attribute(attr="agent")) | ast.keyword(arg="context"):
            return True
        case ast.Subscript(ctx=ast.Load()):
            return True
        case _:
            return False


def _context_keys(call: ast.Call, symbols: Symbols) -> frozenset[str] | None:
    """The keys of a context that is a literal, or a lambda of one; None for another."""
    given = _resolve_name(argument(call, 1, "context"), symbols)
    if isinstance(given, ast.Lambda):
        given = given.body
    if given is None and len(call.args) == 1 and all(keyword.arg for keyword in call.keywords):
        return frozenset()
    match given:
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=said):
            names = [one.arg for one in said if one.arg is not None]
            return frozenset(names) if len(names) == len(said) else None
        case ast.Dict():
            pass
        case _:
            return None
    keys = [key.value for key in given.keys if isinstance(key, ast.Constant)]
    return frozenset(map(str, keys)) if len(keys) == len(given.keys) else None


def _check_step(call: ast.Call, chain: Chain, symbols: Symbols) -> None:
    said = _literal_arguments(call, _OF_STEPS, symbols)
    if not said:
        return
    name = name_of(chain.name, symbols).text
    options = with_model(said.get("model"), said.get("options", NO_OPTIONS), f"step {name!r}")
    settings = AgentSettings(said.get("backend"), options)
    agent = _resolve_agent(chain.subject, symbols)
    try:
        if agent is None:
            check_launchable(Agent("agent", "-"), settings, None)
        else:
            check_launchable(agent, settings, lambda: NO_SETTINGS)
    except DefinitionError as error:
        raise DefinitionError(f"step {name!r}: {error}") from None


def _resolve_agent(node: ast.expr | None, symbols: Symbols) -> Agent[Any] | None:
    """The agent that an expression stands for; None if it is no literal, or invalid."""
    made = _agent_call(node, symbols)
    try:
        return None if made is None else _build_agent(made, symbols)
    except (_NotLiteral, DefinitionError):
        return None


def _agent_call(node: ast.expr | None, symbols: Symbols) -> ast.Call | None:
    """The ``Agent(...)`` that an expression, or its name, stands for, if the source has it."""
    if isinstance(node, ast.Name):
        values = symbols.values_of(node)
        node = values[0] if len(values) == 1 else None
    return node if isinstance(node, ast.Call) and _is_agent(node, symbols) else None


def _is_agent(node: ast.Call, symbols: Symbols) -> bool:
    made = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return symbols.is_ours(made, "Agent")


def _build_agent(node: ast.Call, symbols: Symbols) -> Agent[Any]:
    """An agent with the literal arguments of this call, and a placeholder as its prompt."""
    name = argument(node, 0, "name")
    said = name.value if isinstance(name, ast.Constant) else "agent"
    return Agent(str(said), "-", **_literal_arguments(node, _OF_AGENTS, symbols))


def _literal_arguments(call: ast.Call, names: Sequence[str], symbols: Symbols) -> dict[str, Any]:
    if any(keyword.arg is None for keyword in call.keywords):
        raise _NotLiteral
    said = {str(keyword.arg): keyword.value for keyword in call.keywords}
    return {name: _literal_value(one, symbols) for name, one in said.items() if name in names}


def _literal_value(node: ast.expr, symbols: Symbols) -> Any:
    """The value of a literal, or of ``AgentOptions`` of literals."""
    if isinstance(node, ast.Call):
        if node.args or not symbols.is_ours(node.func, "AgentOptions"):
            raise _NotLiteral
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        return AgentOptions(
            **{str(name): _literal_value(one, symbols) for name, one in given.items()}
        )
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NotLiteral from None
