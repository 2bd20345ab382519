"""Jinja2 for prompts: wherever a value becomes text, data becomes JSON.

Theory of operation. Jinja2 calls ``str`` in three places: for ``{{ value }}`` (``finalize``), in
``~`` and ``%``, and in filters. So the parser replaces the operators by filters, and each filter
that works on text gets the value's text from ``as_text``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.filters import make_attrgetter

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
        tree = super()._parse(source, name, filename)
        for concat in tree.find_all(nodes.Concat):
            concat.nodes = [_filter("string", one) for one in concat.nodes]
        for parent in [tree, *tree.find_all(nodes.Node)]:
            for field, value in parent.iter_fields():
                if isinstance(value, nodes.Mod):
                    setattr(parent, field, _of_mod(value))
                elif isinstance(value, list):
                    parts = cast("list[object]", value)
                    parts[:] = [_of_mod(p) if isinstance(p, nodes.Mod) else p for p in parts]
        return tree


def _filter(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Expr:
    made = nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)
    made.environment = value.environment
    return made


def _of_mod(node: nodes.Mod) -> nodes.Expr:
    return _filter(_MOD, node.left, node.right)


def _mod(left: Any, right: Any) -> Any:
    """``left % right``: text with values in it, or a number."""
    if not isinstance(left, str):
        return left % right
    if isinstance(right, tuple):
        return left % tuple(map(as_text, cast("tuple[object, ...]", right)))
    return left % (
        _texts(cast("dict[str, object]", right)) if isinstance(right, dict) else as_text(right)
    )


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    return str(value) % (_texts(kwargs) or tuple(map(as_text, args)))


def _texts(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: as_text(value) for name, value in values.items()}


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
