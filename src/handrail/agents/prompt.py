"""The text of a prompt, from a Jinja2 template, a file of one, or a function.

Text without any ``{{``, ``{%`` or ``{#`` is used as it is, so it needs no Jinja2. Nothing is
escaped, since the result is no HTML. An undefined name is an error.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.errors import MissingExtra, PromptError
from handrail.typed.jsonsafe import short_repr
from handrail.typed.reference import reference

if TYPE_CHECKING:
    from jinja2 import Environment, TemplateNotFound

    from handrail.model.context import WorkflowContext

Prompt: TypeAlias = "str | Path | Callable[[Mapping[str, Any]], str | Awaitable[str]]"

_MARKUP = ("{{", "{%", "{#")
_UNDEFINED = re.compile(r"'(\w+)' is undefined")


@dataclass(frozen=True, slots=True)
class _Source:
    """A template's text, and the file it was read from, if any."""

    text: str
    file: Path | None = None


async def rendered(
    prompt: Prompt, *, agent: str, context: Mapping[str, Any], workflow: WorkflowContext
) -> str:
    """The prompt's text for one context.

    Raises:
        PromptError: a file that cannot be read, a template that is malformed, names an undefined
            variable or fails otherwise, a function that does not return text.
        MissingExtra: the text is a template, and Jinja2 is not installed.
    """
    if isinstance(prompt, str):
        source = _Source(prompt)
    elif isinstance(prompt, Path):
        source = _Source(_read(prompt, agent), prompt)
    else:
        return await _written(prompt, agent, context)
    return _filled(source, agent, {"ctx": workflow, **context})


def beside(prompt: Prompt, file: str | None) -> Prompt:
    """A relative path to a prompt that lies beside a source file, as an absolute one."""
    if isinstance(prompt, Path) and not prompt.is_absolute() and file is not None:
        near = Path(file).resolve().parent / prompt
        if near.is_file():
            return near
    return prompt


def identity_of(prompt: Prompt) -> str:
    """The template's text, or a function's reference; of a file that cannot be read, its name."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Path):
        return reference(prompt)
    try:
        return prompt.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return str(prompt)


def _read(path: Path, agent: str) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError as error:
        sought = f" in {Path.cwd()}, the working directory, nor beside the agent's own file"
        where = "" if path.is_absolute() else sought
        why = f"its prompt file {str(path)!r} does not exist{where}"
        raise PromptError(agent, why) from error
    except (OSError, UnicodeDecodeError) as error:
        why = f"its prompt file {str(path)!r} cannot be read: {error}"
        raise PromptError(agent, why) from error


async def _written(
    function: Callable[[Mapping[str, Any]], str | Awaitable[str]],
    agent: str,
    context: Mapping[str, Any],
) -> str:
    made = function(context)
    text = await made if inspect.isawaitable(made) else made
    if not isinstance(text, str):
        raise PromptError(
            agent,
            f"its prompt function {reference(function)} must return text, got {short_repr(text)}",
        )
    return text


def _filled(source: _Source, agent: str, variables: Mapping[str, Any]) -> str:
    if not any(mark in source.text for mark in _MARKUP):
        return source.text
    environment = _environment(source)
    filename = str(source.file) if source.file else None
    try:
        code = environment.compile(source.text, filename=filename)
        template = environment.template_class.from_code(
            environment, code, environment.make_globals(None)
        )
        return template.render(variables)
    except Exception as error:
        raise PromptError(agent, _why(error, source, variables)) from error


def _environment(source: _Source) -> Environment:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra("Agent prompts", "jinja2", "agents") from error
    return jinja2.Environment(
        autoescape=False,  # noqa: S701  # prompts are no HTML
        keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(source.file.parent)
        if source.file
        else jinja2.DictLoader({}),
        undefined=jinja2.StrictUndefined,
    )


def _why(error: Exception, source: _Source, variables: Mapping[str, Any]) -> str:
    """What went wrong in the template, where, and what to do."""
    import jinja2

    match error:
        case jinja2.TemplateSyntaxError():
            place = _place(error.filename, error.lineno, source)
            return f"{place}: {(error.message or '').rstrip('.')}. {_RAW}"
        case jinja2.TemplateNotFound():
            return f"{_place_of(error, source)}: {_not_included(error, source)}"
        case jinja2.UndefinedError():
            names = sorted(map(str, variables))
            meant = _near(str(error), names)
            return f"{_place_of(error, source)}: {error}.{meant} It can use: {', '.join(names)}."
        case _:
            return f"{_place_of(error, source)}: {type(error).__name__}: {error}"


_RAW = "Text with braces that is no template goes between {% raw %} and {% endraw %}."


def _near(message: str, names: list[str]) -> str:
    undefined = _UNDEFINED.match(message)
    near = difflib.get_close_matches(undefined[1], names, n=1) if undefined else []
    return f" Did you mean {near[0]!r}?" if near else ""


def _not_included(error: TemplateNotFound, source: _Source) -> str:
    if source.file is None:
        return (
            f"{error.name!r} cannot be included: a prompt given as text has no folder. "
            f"Put the prompt into a file and pass its pathlib.Path."
        )
    return f"there is no {error.name!r} to include in {str(source.file.parent)!r}"


def _place_of(error: Exception, source: _Source) -> str:
    """The innermost line of a template that an error passed through."""
    found: tuple[str | None, int] = (None, 0)
    for frame, line in walk_tb(error.__traceback__):
        if "__jinja_exception__" in frame.f_globals:  # how Jinja2 marks the lines of a template
            found = (frame.f_code.co_filename, line)
    return _place(*found, source)


def _place(filename: str | None, line: int, source: _Source) -> str:
    of = f" {filename or source.file}" if source.file else ""
    return f"prompt{of}, line {line}" if line else f"prompt{of}"
