"""Resolves the names in a module's text, as far as possible without importing it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias, TypeVar, cast

from handrail.model.dataclass import dataclass
from handrail.static.source import (
    TOO_DEEP,
    FunctionNode,
    Source,
    SourceUnavailable,
    function_of,
    functions_in,
    parse_source,
)

T = TypeVar("T")
Region: TypeAlias = FunctionNode | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def own_nodes(region: ast.AST) -> Iterator[ast.AST]:
    """The syntax nodes of a function's own body, in source order.

    Yields functions, lambdas and classes inside it, but not their insides.
    """
    match region:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Module():
            roots: list[ast.AST] = list(region.body)
        case ast.Lambda():
            roots = [region.body]
        case _:
            roots = list(ast.iter_child_nodes(region))
    waiting = roots[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += list(ast.iter_child_nodes(node))[::-1]


def is_generator(function: FunctionNode) -> bool:
    """True if the function yields."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one scope: those it binds, its functions, assigned values, list appends."""

    bound: frozenset[str]
    functions: dict[str, FunctionNode]
    values: dict[str, tuple[ast.expr, ...]]
    appended: dict[str, tuple[ast.expr, ...]]


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names of one module: its imports, its functions, its scopes, each node's parent."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    imports: dict[str, str]
    functions: tuple[tuple[str, FunctionNode], ...]
    names: dict[ast.AST, Names]

    def dotted(self, node: ast.expr) -> str | None:
        """The full name that an expression refers to: ``now`` is ``time.time`` if so imported.

        None if the expression is no name, or if this module defines the name itself.
        """
        parts: list[str] = []
        base = node
        while isinstance(base, ast.Attribute):
            parts.append(base.attr)
            base = base.value
        if not isinstance(base, ast.Name):
            return None
        root = self._root(base)
        return None if root is None else ".".join([root, *reversed(parts)])

    def _root(self, name: ast.Name) -> str | None:
        if any(name.id in self.names[scope].bound for scope in self.scopes(name)[:-1]):
            return None
        if name.id in self.imports:
            return self.imports[name.id]
        return None if name.id in self.names[self.tree].bound else name.id

    def is_step(self, node: ast.expr) -> bool:
        """True if this expression is handrail's ``step``."""
        return self.is_ours(node, "step")

    def is_workflow_decorator(self, node: ast.expr) -> bool:
        """True for ``@workflow`` in each of its spellings."""
        return self.is_ours(node.func if isinstance(node, ast.Call) else node, "workflow")

    def is_ours(self, node: ast.expr, name: str) -> bool:
        """True if this expression is handrail's object of this name."""
        dotted = self.dotted(node)
        if dotted is None or dotted.rpartition(".")[2] != name:
            return False
        # A bare unbound name comes from a fragment without its imports, or from a star import. A
        # relative import may be a module of the user's that re-exports handrail's names.
        return dotted == name or dotted.startswith(("handrail.", "."))

    def is_workflow(self, function: FunctionNode) -> bool:
        """True if the function is decorated with ``@workflow``."""
        return any(self.is_workflow_decorator(one) for one in function.decorator_list)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that enclose a node, innermost first."""
        while (outer := self.parents.get(node)) is not None:
            yield outer
            node = outer

    def scopes(self, node: ast.AST) -> list[ast.Module | FunctionNode]:
        """The functions around a node, innermost first, and the module last."""
        return [one for one in self.around(node) if isinstance(one, ast.Module | FunctionNode)]

    def function_named(self, node: ast.expr) -> FunctionNode | None:
        """The function of this module that a name refers to at its place."""
        if not isinstance(node, ast.Name):
            return None
        names = self._binding(node)
        return None if names is None else names.functions.get(node.id)

    def _binding(self, name: ast.Name) -> Names | None:
        """The names of the innermost scope that binds this one."""
        around = (self.names[scope] for scope in self.scopes(name))
        return next((names for names in around if name.id in names.bound), None)

    def is_local(self, function: FunctionNode) -> bool:
        """True if the function is defined inside another one."""
        return any(isinstance(one, FunctionNode) for one in self.around(function))

    def values_of(self, name: ast.Name) -> tuple[ast.expr, ...]:
        """All values assigned to a name in the innermost scope that binds it."""
        names = self._binding(name)
        return names.values.get(name.id, ()) if names else ()

    def reaching(self, name: ast.Name) -> tuple[ast.expr, ...]:
        """The values that a name may have where it is used.

        An assignment earlier in the same block, or in one around it, replaces those before it.
        """
        values = self.values_of(name)
        scope = next(iter(self.scopes(name)), None)
        if scope is None or name.id not in self.names[scope].bound:
            return values  # a closure may be called at any time
        certain = [_place(value) for value in values if self._comes_before(value, name)]
        if not certain:
            return values
        return tuple(value for value in values if max(certain) <= _place(value) < _place(name))

    def _comes_before(self, value: ast.expr, use: ast.Name) -> bool:
        """True if a plain assignment of this value always runs before the use."""
        statement = self.parents.get(value)
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            return False
        steps = {use, *self.around(use)}
        for _, block in ast.iter_fields(self.parents[statement]):
            inside = cast("list[ast.AST]", block) if isinstance(block, list) else []
            if statement in inside:
                return any(one in steps for one in inside[inside.index(statement) + 1 :])
        return False

    def appended_to(self, name: ast.Name) -> tuple[ast.expr, ...]:
        """The values that are appended to the list of this name."""
        names = self._binding(name)
        return names.appended.get(name.id, ()) if names else ()

    def loop_around(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """The innermost loop around a node, in the same function."""
        for one in self.around(node):
            if isinstance(one, ast.For | ast.AsyncFor | ast.While):
                return one
            if isinstance(one, SCOPES):
                return None
        return None


def read_from(source: Source, read: Callable[[FunctionNode, Symbols], T]) -> T:
    """The result of ``read``, for the function that a source refers to and its module's symbols.

    Raises:
        SourceUnavailable: the text does not parse, or has no such function.
    """
    tree = parse_source(source)
    function = function_of(source, tree)
    try:
        return read(function, symbols_of(tree))
    except RecursionError:
        raise SourceUnavailable(source.name or source.filename, f"it is {TOO_DEEP}") from None


@lru_cache(maxsize=4)
def symbols_of(tree: ast.Module) -> Symbols:
    """Read a module's imports, definitions and nesting."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    functions = tuple(functions_in(tree))
    scopes = [tree, *(node for _, node in functions)]
    imports = _imports(tree)
    aliases = dict(_aliases(tree, imports))
    names: dict[ast.AST, Names] = {one: _names(one) for one in scopes}
    top = names[tree]
    names[tree] = replace(top, bound=top.bound - aliases.keys())
    return Symbols(tree, parents, imports | aliases, functions, names)


def _aliases(tree: ast.Module, imports: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The module's own names for imported objects: ``step = handrail.step``."""
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Attribute(value=ast.Name(id=root), attr=attr),
            ) if root in imports:
                yield name, f"{imports[root]}.{attr}"
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=old)) if old in imports:
                yield name, imports[old]
            case _:
                pass


def _imports(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                first = name.name.partition(".")[0]
                names[name.asname or first] = name.name if name.asname else first
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            for name in node.names:
                names[name.asname or name.name] = f"{module}{joint}{name.name}"
    return names


def _names(scope: ast.Module | FunctionNode) -> Names:
    """Read the names of one scope, parameters included."""
    bound: set[str] = set()
    functions: dict[str, FunctionNode] = {}
    values: dict[str, tuple[ast.expr, ...]] = {}
    appended: dict[str, tuple[ast.expr, ...]] = {}
    if isinstance(scope, FunctionNode):
        bound |= {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)}
    for node in own_nodes(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
                functions[name] = node
            case ast.Call(func=ast.Attribute(ast.Name(id=name), "append"), args=[value]):
                appended[name] = (*appended.get(name, ()), value)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                values[name] = (*values.get(name, ()), value)
            case _:
                pass
    return Names(frozenset(bound), functions, values, appended)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
