"""Takes a step expression apart: ``step(name)``, a verb, modifiers."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from handrail.model.dataclass import dataclass
from handrail.static.symbols import Symbols
from handrail.steps.verbs import MODIFIERS

VERBS: Mapping[str, str | None] = {
    "call": "",
    "python": "action",
    "command": "argv",
    "agent": "agent",
    "generate": "generator",
    "validate": "stages",
    "subworkflow": "workflow",
    "run_workflow": "",
    "branch": None,
    "parallel": None,
    "race": None,
    "worktree": None,
    "for_each": "items",
    "work": "tasks",
    "holding": "what",
    "ask": "question",
    "wait_for": "signal",
    "sleep": "seconds_or_timedelta_or_datetime",
    "verb": "verb",
}
"""The first parameter of each verb; "": positional only; None: the verb has no subject."""
CHILDREN = frozenset({"subworkflow", "run_workflow"})
"""Verbs that run a workflow."""


def kind_of(word: str) -> str:
    """The kind of the verb that a word makes."""
    return {"call": "python", "run_workflow": "subworkflow"}.get(word, word)


BODIES: Mapping[str, int] = {"for_each": 1, "work": 1, "holding": 1, "worktree": 0}
"""The position of the argument whose steps run below the step, by verb."""


@dataclass(frozen=True, slots=True)
class StepName:
    """A step's name in the source: ``text`` for people, ``fixed`` its literal parts.

    Between two entries of ``fixed`` is a part that only a run knows: ``("fix-", "")`` for
    ``f"fix-{i}"``. A literal name has a single entry.
    """

    text: str
    fixed: tuple[str, ...]

    @property
    def literal(self) -> bool:
        """True if the source shows the whole name."""
        return len(self.fixed) == 1

    def matches(self, name: str) -> bool:
        """True if this expression can produce the name."""
        pattern = ".*".join(map(re.escape, self.fixed))
        texts = (name, name.replace("%2F", "/"))  # paths escape slashes
        return any(re.fullmatch(pattern, text, re.DOTALL) for text in texts)


@dataclass(frozen=True, slots=True)
class Chain:
    """One step expression, taken apart."""

    origin: ast.Call
    verb: str
    call: ast.Call | None
    modifiers: tuple[tuple[str, ast.Call], ...]

    @property
    def name(self) -> ast.expr | None:
        """The expression of the step's name."""
        return argument(self.origin, 0, "name")

    @property
    def subject(self) -> ast.expr | None:
        """The expression that the verb acts on, or None."""
        name = VERBS.get(self.verb)
        return None if name is None else argument(self.call, 0, name)

    def modifier(self, name: str) -> ast.Call | None:
        """The call of a modifier, or None."""
        return next((call for modifier, call in self.modifiers if modifier == name), None)


def read_chain(
    node: ast.expr, symbols: Symbols, *, seen: frozenset[ast.expr] = frozenset()
) -> Chain | None:
    """The step that an expression builds, or None if it builds none.

    It follows variables: ``draft.retry(2)`` continues the one step that ``draft`` may be there.
    ``seen`` are the values followed so far, which it does not follow again.
    """
    calls: list[tuple[str, ast.Call]] = []
    base = node
    while isinstance(base, ast.Call) and not symbols.is_step(base.func):
        if not isinstance(base.func, ast.Attribute):
            return None
        calls.append((base.func.attr, base))
        base = base.func.value
    if isinstance(base, ast.Call):
        return _chain(base, calls[::-1])
    if calls and isinstance(base, ast.Name):
        return _continued(base, calls[::-1], symbols, seen)
    return None


def _chain(origin: ast.Call, calls: list[tuple[str, ast.Call]]) -> Chain:
    verb, call = "", None
    modifiers: list[tuple[str, ast.Call]] = []
    for name, one in calls:
        if not verb and name not in MODIFIERS:
            verb, call = name, one
        else:
            modifiers.append((name, one))
    return Chain(origin, verb, call, tuple(modifiers))


def _continued(
    name: ast.Name, calls: list[tuple[str, ast.Call]], symbols: Symbols, seen: frozenset[ast.expr]
) -> Chain | None:
    values = [one for one in symbols.reaching(name) if one not in seen]
    if len(values) != 1:
        return None
    first = read_chain(values[0], symbols, seen=seen | {values[0]})
    if first is None:
        return None
    known = [(first.verb, first.call)] if first.call is not None else []
    return _chain(first.origin, [*known, *first.modifiers, *calls])


def calls_of(verbs: Collection[str], symbols: Symbols) -> Iterator[tuple[ast.Call, Chain]]:
    """Each call of one of these verbs in a text, with its step."""
    for node in ast.walk(symbols.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            chain = read_chain(node, symbols) if node.func.attr in verbs else None
            if chain is not None and chain.call is node:
                yield node, chain


def argument(call: ast.Call | None, index: int, keyword: str = "") -> ast.expr | None:
    """An argument of a call by position or keyword; None if it is missing or behind a star."""
    if call is None:
        return None
    for one in call.keywords:
        if keyword and one.arg == keyword:
            return one.value
    before = call.args[: index + 1]
    if len(before) <= index or any(isinstance(one, ast.Starred) for one in before):
        return None
    return before[index]


def name_of(node: ast.expr | None, symbols: Symbols) -> StepName:
    """The step name of an expression: literal, or a pattern such as ``fix-{i}``."""
    if node is None:
        return StepName("?", ("", ""))
    pieces = list(_pieces(node, symbols))
    text = "".join(piece if known else f"{{{piece}}}" for piece, known in pieces)
    fixed = [""]
    for piece, known in pieces:
        if known:
            fixed[-1] += piece
        else:
            fixed.append("")
    return StepName(text, tuple(fixed))


def _pieces(node: ast.expr, symbols: Symbols) -> Iterator[tuple[str, bool]]:
    match node:
        case ast.Constant(value=str() as text):
            yield text, True
        case ast.JoinedStr(values=values):
            for value in values:
                yield from _pieces(value, symbols)
        case ast.FormattedValue(value=ast.Constant(value=str() as text), format_spec=None):
            yield text, True
        case ast.FormattedValue(value=value):
            yield source_text(value), False
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _pieces(left, symbols)
            yield from _pieces(right, symbols)
        case ast.Name() if (constant := _constant(node, symbols)) is not None:
            yield constant, True
        case ast.Call(func=ast.Name(id="str"), args=[value], keywords=[]):
            yield source_text(value), False
        case _:
            yield source_text(node), False


def _constant(name: ast.Name, symbols: Symbols) -> str | None:
    """The literal text of a name that is assigned only once; else None."""
    around = symbols.scopes(name)
    scope = next((one for one in around if name.id in symbols.names[one].bound), None)
    if scope is None:
        return None
    stores = [one for one in ast.walk(scope) if _stores(one, name.id)]
    match symbols.values_of(name):
        case (ast.Constant(value=str() as text),) if len(stores) == 1:
            return text
        case _:
            return None


def _stores(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Name(id=target, ctx=ast.Store()):
            return target == name
        case ast.arg(arg=target):
            return target == name
        case _:
            return False


def source_text(node: ast.AST, limit: int = 48) -> str:
    """An expression's source on one line, cut with an ellipsis at ``limit`` characters."""
    return shorten(ast.unparse(node), limit)


def shorten(text: str, limit: int = 48) -> str:
    """The text on one line, cut with an ellipsis at ``limit`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def printable(text: str) -> str:
    """The text, with escapes for what cannot be printed."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
