"""Jinja2 for prompts: wherever a value becomes text, data becomes JSON.

Theory of operation. Jinja2 calls ``str`` in three places: for ``{{ value }}`` (``finalize``), in
``~`` and ``%``, and in filters. So the parser replaces the operators by filters, and each filter
that works on text gets the value's text from ``as_text``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.filters import make_attrgetter
from jinja2.visitor import NodeTransformer

from handrail.agents.texts import as_json, as_text

_OF_TEXT = (
    *("capitalize", "center", "e", "escape", "forceescape", "indent", "lower", "replace", "safe"),
    *("string", "striptags", "title", "trim", "truncate", "upper", "urlize"),
    *("wordcount", "wordwrap"),
)


def environment(folder: Path | None) -> jinja2.Environment:
    """The environment that renders templates; ``folder`` has the templates that they include."""
    made = _Environment(
        autoescape=False,  # prompts are not HTML
        keep_trailing_newline=True,
        finalize=as_text,
        loader=jinja2.FileSystemLoader(folder) if folder else jinja2.DictLoader({}),
        undefined=jinja2.StrictUndefined,
    )
    filters = cast("dict[str, Callable[..., Any]]", made.filters)
    for name in _OF_TEXT:
        filters[name] = _given_text(filters[name])
    filters["join"] = _join
    filters["format"] = _format
    filters["pprint"] = functools.partial(as_json, indent=2)
    filters["tojson"] = as_json
    filters[_MOD] = _mod
    return made


_MOD = " %"  # a name that no template can use


class _Environment(jinja2.Environment):
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return cast("nodes.Template", _AsFilters().visit(super()._parse(source, name, filename)))


class _AsFilters(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:  # noqa: N802 - the visitor's name
        self.generic_visit(node)
        node.nodes = [_filter("string", one) for one in node.nodes]
        return node

    def visit_Mod(self, node: nodes.Mod) -> nodes.Filter:  # noqa: N802 - the visitor's name
        self.generic_visit(node)
        return _filter(_MOD, node.left, node.right)


def _filter(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    made = nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)
    made.environment = value.environment
    return made


def _mod(left: Any, right: Any) -> Any:
    """``left % right``: text with values in it, or a number."""
    if not isinstance(left, str):
        return left % right
    if isinstance(right, tuple):
        return left % tuple(map(as_text, cast("tuple[object, ...]", right)))
    if isinstance(right, dict):
        named = cast("dict[str, object]", right)
        return left % {name: as_text(value) for name, value in named.items()}
    return left % as_text(right)


def _format(value: str, *args: Any, **kwargs: Any) -> Any:
    return _mod(str(value), kwargs or args)


@jinja2.pass_environment
def _join(
    env: jinja2.Environment, value: Any, d: str = "", attribute: str | int | None = None
) -> str:
    each = value if attribute is None else map(make_attrgetter(env, attribute), value)
    return str(d).join(str(as_text(one)) for one in each)


def _given_text(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, called with its value's text; some filters get the environment before it."""
    place = 1 if hasattr(filter_, "jinja_pass_arg") else 0

    @functools.wraps(filter_)
    def with_text(*args: Any, **kwargs: Any) -> Any:
        return filter_(*args[:place], as_text(args[place]), *args[place + 1 :], **kwargs)

    return with_text
