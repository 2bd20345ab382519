"""Templates of Jinja2 in a sandbox, and expressions of simpleeval: the one file that needs them.

A template that is one expression has its value; any other has a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

from handrail.agents.texts import as_json, as_text
from handrail.errors import MissingExtra
from handrail.yaml.shapes import OUTPUTS

try:
    import jinja2
    from jinja2 import meta, nodes
    from jinja2.sandbox import SandboxedEnvironment
except ImportError as error:
    raise MissingExtra("A workflow in YAML", "Jinja2", "yaml") from error

TemplateError = jinja2.TemplateError
_FALSE = frozenset({"false", "0", "no", ""})
_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=",
              "in": "in", "notin": "not in"}  # fmt: skip
_CONSTANTS = {"True": True, "False": False, "None": None}


class _Missing(jinja2.ChainableUndefined, jinja2.StrictUndefined):
    """``{{ node.output.x | default("") }}`` may ask a node that was not visited; others may not."""


class _Environment(SandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of a mapping before its methods: ``output.items`` is data."""
        if isinstance(obj, Mapping) and attribute in obj:
            return cast("Mapping[str, Any]", obj)[attribute]
        return super().getattr(obj, attribute)


def _default(value: Any, default: Any = "", boolean: bool = False) -> Any:  # noqa: FBT001, FBT002
    missing = isinstance(value, jinja2.Undefined) or value is None
    return default if missing or (boolean and not value) else value


@cache
def environment(folder: Path | None = None, *, lenient: bool = False) -> jinja2.Environment:
    """The environment of a file's templates; ``lenient``: what is missing is empty."""
    made = _Environment(
        autoescape=False,  # prompts are not HTML
        keep_trailing_newline=True,
        finalize=as_text,
        loader=jinja2.FileSystemLoader(folder) if folder else None,
        undefined=jinja2.ChainableUndefined if lenient else _Missing,
    )
    filters = cast("dict[str, Callable[..., Any]]", made.filters)
    filters |= {"json": lambda given, indent=2: as_json(given, indent), "tojson": as_json}
    filters |= {"default": _default, "d": _default}
    return made


@contextmanager
def _failing(text: str) -> Iterator[None]:
    """Make every failure inside one of the template with this text."""
    try:
        yield
    except jinja2.TemplateError:
        raise
    except Exception as error:
        what = str(error) or type(error).__name__
        raise jinja2.TemplateError(f"{text[:200]!r}: {what}") from error


def render(
    template: str | Path,
    variables: Mapping[str, Any],
    *,
    folder: Path | None = None,
    lenient: bool = False,
) -> str:
    """The text of a template of a workflow file; ``lenient``: of workhorse's.

    Raises:
        TemplateError: it is malformed, names what is not there, or fails.
    """
    if isinstance(template, Path):
        folder = folder or template.parent
        template = template.read_text("utf-8")
    if not is_template(template):
        return template
    names = _helpers(variables) if lenient else None
    with _failing(template):
        return environment(folder, lenient=lenient).from_string(template, names).render(variables)


def value(
    template: str,
    variables: Mapping[str, Any],
    read: Callable[[str], Any] | None = None,
    *,
    lenient: bool = False,
) -> Any:
    """The value of a template that is one expression, else what ``read`` makes of its text."""
    code = expression_in(template)
    if code is None:
        return (read or literal)(render(template, variables, lenient=lenient))
    given = {**_helpers(variables), **variables} if lenient else variables
    with _failing(template):
        made = environment(lenient=lenient).compile_expression(code, undefined_to_none=False)
        found = made(given)
        return str(found) if isinstance(found, jinja2.Undefined) else found  # a strict one raises


def holds(when: str, variables: Mapping[str, Any]) -> bool:
    """Whether the condition of a route holds: one of Jinja in braces, else of simpleeval.

    Raises:
        TemplateError: it cannot be evaluated.
    """
    found = value(when, variables) if is_template(when) else _calculated(when, variables)
    return found.strip().lower() not in _FALSE if isinstance(found, str) else bool(found)


def _calculated(expression: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression; its names are ``node_field``, and the fields of the output."""
    try:
        import simpleeval
    except ImportError as error:
        raise MissingExtra("A condition without braces", "simpleeval", "yaml") from error
    names = dict(variables)
    for name, under in variables.items():
        fields = cast("Mapping[str, Any]", under) if isinstance(under, Mapping) else {}
        names |= {f"{name}_{key}": fields[key] for key in fields}
        names |= fields if name == "output" else {}
    with _failing(expression):
        return simpleeval.EvalWithCompoundTypes(names=names).eval(expression)


def literal(text: str) -> Any:
    """The value that a rendered text spells: a number, JSON, a constant of Python; else itself."""
    said = text.strip()
    try:
        if said in _CONSTANTS:
            return _CONSTANTS[said]
        if said.startswith(("{", "[", '"')) or said in {"true", "false", "null"}:
            return json.loads(said)
        return float(said) if "." in said else int(said)
    except ValueError:
        return text


def is_template(text: str) -> bool:
    """True if a text has marks of Jinja."""
    return any(mark in text for mark in ("{{", "{%", "{#"))


def expression_in(template: str) -> str | None:
    """The code of a template that is one expression and nothing else."""
    code = template.strip()
    is_one = code.startswith("{{") and code.endswith("}}") and code.count("{{") == 1
    return code[2:-2].removeprefix("-").removesuffix("-").strip() if is_one else None


def python_of(template: str, path_code: Callable[[list[str]], str]) -> str:
    """A template that is one simple expression, as Python; ``path_code`` is for names with dots.

    Raises:
        ValueError: it is no such template.
    """
    if expression_in(template) is None:
        raise ValueError(template)
    (output,) = environment().parse(template.strip()).body
    return _python(output.nodes[0] if isinstance(output, nodes.Output) else output, path_code)


def _python(node: nodes.Node, path_code: Callable[[list[str]], str]) -> str:
    match node:
        case nodes.Const():
            return repr(node.value)
        case nodes.Getattr() | nodes.Name():
            path = list[str]()
            while isinstance(node, nodes.Getattr):
                path, node = [node.attr, *path], node.node
            return path_code([node.name, *path]) if isinstance(node, nodes.Name) else _no(node)
        case nodes.Not():
            return f"not {_python(node.node, path_code)}"
        case nodes.And() | nodes.Or():
            word = "and" if isinstance(node, nodes.And) else "or"
            return f"({_python(node.left, path_code)} {word} {_python(node.right, path_code)})"
        case nodes.Compare():
            ops = [f"{_OPERATORS[one.op]} {_python(one.expr, path_code)}" for one in node.ops]
            return " ".join([_python(node.expr, path_code), *ops])
        case nodes.List():
            return f"[{', '.join(_python(item, path_code) for item in node.items)}]"
        case _:
            return _no(node)


def _no(node: nodes.Node) -> str:
    raise ValueError(type(node).__name__)


def names_in(text: str) -> frozenset[str]:
    """The variables that a template reads; raises ``TemplateError`` if it is malformed."""
    return frozenset(meta.find_undeclared_variables(environment().parse(text)))


def _helpers(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The functions of workhorse's templates, for a repository without a manifest of its own."""
    outputs: Mapping[str, Mapping[str, Any]] = variables.get(OUTPUTS, {})
    files = ("instruction_ref", "instruction_file", "skill_file", "prompt_file", "prompt_ref")
    return {
        **{name: lambda name="", *_: f"generated {name} when installed" for name in files},
        "workhorse_var": lambda name: variables.get(name, ""),
        "get_node_output": lambda node, key, default="": outputs.get(node, {}).get(key, default),
        "skill_dir": lambda: ".",
        "skill_load_ref": lambda name, *_: f"/{name}",
        "isUsingInstruction": lambda *_: False,
    }


HELPERS = frozenset(_helpers({}))
"""The names of these functions."""
