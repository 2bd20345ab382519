"""Words for a step's verb and modifiers, short enough for a chart or a tree."""

from __future__ import annotations

import ast

from handrail.static.chain import Chain, argument, name_of, shorten, source_text
from handrail.static.symbols import Symbols


def detail_of(chain: Chain, symbols: Symbols) -> str:
    """What the verb acts on, in words: an action, a command line, a question."""
    call, subject = chain.call, chain.subject
    match chain.verb:
        case "call" | "python":
            return _action(subject)
        case "agent" | "generate":
            return _agent(subject, symbols)
        case "command":
            return _command(subject, symbols)
        case "validate":
            return _stages(subject, symbols)
        case "subworkflow" | "run_workflow" | "sleep" | "verb":
            return _source(subject)
        case "ask":
            return _question(call, subject, symbols)
        case "wait_for":
            return _text(subject, symbols)
        case "for_each":
            return ", ".join([_source(subject), *_group(call)])
        case "work":
            return ", ".join([_source(subject), *_group(call), *_bounds(call)])
        case "holding":
            return _claim_text(subject)
        case "worktree":
            return _text(argument(call, 99, "merge"), symbols)
        case _:
            return ", ".join(_group(call))


def modifiers_of(chain: Chain) -> tuple[str, ...]:
    """Each modifier in words: ``retry 2``, ``when ready``, ``once``."""
    return tuple(_modifier(name, call) for name, call in chain.modifiers)


def _modifier(name: str, call: ast.Call) -> str:
    words = {"with_rollback": "rollback", "uses": "uses"}.get(name, name.replace("_", " "))
    value = argument(call, 0) or next((keyword.value for keyword in call.keywords), None)
    return words if value is None else f"{words} {_action(value)}"


def _source(node: ast.expr | None) -> str:
    return "" if node is None else source_text(node)


def _action(node: ast.expr | None) -> str:
    match node:
        case ast.Lambda():
            return "lambda"
        case ast.Call(func=func, args=[inner, *_]) if ast.unparse(func).endswith("partial"):
            return _action(inner)
        case _:
            return _source(node)


def _agent(node: ast.expr | None, symbols: Symbols) -> str:
    match node:
        case ast.Call(args=[ast.Constant(value=str() as name), *_]):
            return name
        case ast.Name() as variable:
            return _named_agent(variable, symbols) or variable.id
        case _:
            return _source(node)


def _named_agent(variable: ast.Name, symbols: Symbols) -> str:
    match symbols.values_of(variable):
        case (ast.Call(args=[ast.Constant(value=str() as name), *_]),):
            return name
        case _:
            return ""


def _text(node: ast.expr | None, symbols: Symbols) -> str:
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return shorten(name_of(node, symbols).text)
        case _:
            return _source(node)


def _command(node: ast.expr | None, symbols: Symbols) -> str:
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return shorten(" ".join(_word(part, symbols) for part in parts))
        case _:
            return _text(node, symbols)


def _word(node: ast.expr, symbols: Symbols) -> str:
    text = name_of(node, symbols).text
    return f"'{text}'" if " " in text and not isinstance(node, ast.Starred) else text


def _stages(node: ast.expr | None, symbols: Symbols) -> str:
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return shorten(", ".join(_agent(part, symbols).strip("'\"") for part in parts))
        case None | ast.Constant(value=None):
            return "the configured stages"
        case _:
            return _source(node)


def _question(call: ast.Call | None, asked: ast.expr | None, symbols: Symbols) -> str:
    question = _text(asked, symbols)
    choices = argument(call, 99, "choices")
    match choices:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            listed = " / ".join(name_of(part, symbols).text for part in parts)
            return f"{question} ({shorten(listed)})"
        case _:
            return question


def _claim_text(node: ast.expr | None) -> str:
    """A claim's name or patterns, as in the source."""
    match node:
        case ast.Constant(value=str() as name):
            return name
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return shorten(", ".join(source_text(part).strip("'\"") for part in parts))
        case _:
            return _source(node)


def _bounds(call: ast.Call | None) -> list[str]:
    """The conditions under which ``work`` stops, in words."""
    at_most, stop = argument(call, 99, "at_most"), argument(call, 99, "stop")
    words = [] if at_most is None else [f"at most {_source(at_most)}"]
    return words if stop is None else [*words, f"until {_action(stop)}"]


def _group(call: ast.Call | None) -> list[str]:
    words: list[str] = []
    match argument(call, 99, "max_concurrency"):
        case None | ast.Constant(value=None):
            pass
        case limit:
            words.append(f"{source_text(limit)} at a time")
    match argument(call, 99, "on_error"):
        case ast.Constant(value=str() as mode) if mode != "fail_fast":
            words.append(mode.replace("_", " "))
        case _:
            pass
    return words
