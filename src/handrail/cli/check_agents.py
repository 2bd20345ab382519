"""Agents that would be refused when they are launched, as far as the source says it.

Only what is written out counts: a backend's name, ``AgentOptions`` of literals, an agent that a
name of the text stands for and nothing else. Whoever replaces an agent for a run may make it right
again; in doubt nothing is found, and the run says it when it starts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from handrail.agents.agent import Agent, check_told
from handrail.errors import DefinitionError
from handrail.model.agent_options import (
    NO_OPTIONS,
    NO_SETTINGS,
    AgentOptions,
    AgentSettings,
    with_model,
)
from handrail.static.chain import Chain, argument, name_of, read_chain
from handrail.static.lint_steps import Mistake, mistake
from handrail.static.symbols import Symbols

_GIVEN_TO = {"agent": "agent", "generate": "generator"}
_OF_STEPS = ("backend", "model", "options")
_OF_AGENTS = (*_OF_STEPS, "fallback")


class _Unknown(Exception):
    """Something is said that is not written out."""


def agent_mistakes(symbols: Symbols) -> Iterator[Mistake]:
    """What is wrong with the agents of a module, and with what its steps tell them."""
    for node in ast.walk(symbols.tree):
        if not isinstance(node, ast.Call):
            continue
        try:
            _check(node, symbols)
        except DefinitionError as error:
            yield mistake("HR109", node, str(error).rstrip("."), "")
        except Exception:  # noqa: BLE001, S112  # whatever else is wrong with it, the run tells
            continue


def _check(node: ast.Call, symbols: Symbols) -> None:
    """Do nothing, or raise what an agent or a step with one would be refused for.

    Raises:
        DefinitionError: that.
    """
    if _is_agent(node, symbols):
        agent = _agent(node, symbols)
        check_told(agent, NO_SETTINGS, lambda: NO_SETTINGS)
    elif isinstance(node.func, ast.Attribute) and node.func.attr in _GIVEN_TO:
        chain = read_chain(node, symbols)
        if chain is not None and chain.call is node:
            _check_step(node, chain, symbols)


def _check_step(call: ast.Call, chain: Chain, symbols: Symbols) -> None:
    said = _said(call, _OF_STEPS, symbols)
    if not said:
        return
    name = name_of(chain.name, symbols).text
    options = with_model(said.get("model"), said.get("options", NO_OPTIONS), f"step {name!r}")
    settings = AgentSettings(said.get("backend"), options)
    agent = _given(argument(call, 0, _GIVEN_TO[chain.verb]), symbols)
    try:
        if agent is None:
            check_told(Agent("agent", "-"), settings, None)
        else:
            check_told(agent, settings, lambda: NO_SETTINGS)
    except DefinitionError as error:
        raise DefinitionError(f"step {name!r}: {error}") from None


def _given(node: ast.expr | None, symbols: Symbols) -> Agent[Any] | None:
    """The agent that an expression stands for; None if that is not written out, or is wrong."""
    if isinstance(node, ast.Name):
        values = symbols.values_of(node)
        node = values[0] if len(values) == 1 else None
    if not isinstance(node, ast.Call) or not _is_agent(node, symbols):
        return None
    try:
        return _agent(node, symbols)
    except (_Unknown, DefinitionError):
        return None


def _is_agent(node: ast.Call, symbols: Symbols) -> bool:
    made = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return symbols.is_ours(made, "Agent")


def _agent(node: ast.Call, symbols: Symbols) -> Agent[Any]:
    """An agent with what is written out of this one; its prompt is another."""
    name = argument(node, 0, "name")
    said = name.value if isinstance(name, ast.Constant) else "agent"
    return Agent(str(said), "-", **_said(node, _OF_AGENTS, symbols))


def _said(call: ast.Call, names: Sequence[str], symbols: Symbols) -> dict[str, Any]:
    if any(one.arg is None for one in call.keywords):
        raise _Unknown
    said = {str(one.arg): one.value for one in call.keywords}
    return {name: _value(one, symbols) for name, one in said.items() if name in names}


def _value(node: ast.expr, symbols: Symbols) -> Any:
    """The value of an expression that has no names but ``AgentOptions``."""
    if isinstance(node, ast.Call):
        if node.args or not symbols.is_ours(node.func, "AgentOptions"):
            raise _Unknown
        given = {one.arg: one.value for one in node.keywords}
        return AgentOptions(**{str(name): _value(one, symbols) for name, one in given.items()})
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _Unknown from None
