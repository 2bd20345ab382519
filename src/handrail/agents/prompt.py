"""Renders a prompt's text from a Jinja2 template, a file of one, or a function.

Text without any ``{{``, ``{%`` or ``{#`` is used unchanged, so it needs no Jinja2. Nothing is
escaped, because the result is not HTML. An undefined name is an error.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from handrail.agents.texts import text_of
from handrail.errors import DefinitionError, MissingExtra, did_you_mean
from handrail.model.agent_options import ContextMode
from handrail.model.dataclass import dataclass
from handrail.model.launch import Launch, PromptError
from handrail.model.results import StepResult
from handrail.shortening import shortened
from handrail.typed.jsonsafe import short_repr
from handrail.typed.reference import reference

if TYPE_CHECKING:
    from jinja2 import Environment, Template, TemplateNotFound

    from handrail.model.context import WorkflowContext


Prompt: TypeAlias = "str | Path | Callable[[Mapping[str, Any]], str | Awaitable[str]]"

_MARKUP = ("{{", "{%", "{#")
_UNDEFINED = re.compile(r"^'(\w+)' is undefined")


@dataclass(frozen=True, slots=True)
class _Source:
    """A template's text, and the file it was read from, if any."""

    text: str
    file: Path | None = None


async def render_prompt(
    prompt: Prompt, *, agent: str, context: Mapping[str, Any], workflow: WorkflowContext
) -> str:
    """The prompt's text for one context.

    Raises:
        PromptError: a file cannot be read; a template is malformed, names an undefined variable or
            fails otherwise; or a function does not return text.
        MissingExtra: the text is a template, and Jinja2 is not installed.
    """
    if isinstance(prompt, str):
        source = _Source(prompt)
    elif isinstance(prompt, Path):
        source = _Source(_read_prompt_file(prompt, agent), prompt)
    else:
        return await _call_prompt(prompt, agent, context)
    return _render_template(source, agent, {"ctx": workflow, **context})


def resolve_beside(prompt: Prompt, file: str | None) -> Prompt:
    """A relative path to a prompt file beside a source file, as an absolute path."""
    if isinstance(prompt, Path) and not prompt.is_absolute() and file is not None:
        near = Path(file).resolve().parent / prompt
        if near.is_file():
            return near
    return prompt


def identity_of(prompt: Prompt) -> str:
    """The template's text, or a function's reference; for an unreadable file, its path."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Path):
        return reference(prompt)
    try:
        return prompt.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return str(prompt)


def _read_prompt_file(path: Path, agent: str) -> str:
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


async def _call_prompt(
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


def _render_template(source: _Source, agent: str, variables: Mapping[str, Any]) -> str:
    if not any(mark in source.text for mark in _MARKUP):
        return source.text
    try:
        # What a file includes may have changed since.
        template = (_template if source.file is None else _template.__wrapped__)(source)
        return template.render(variables)
    except MissingExtra:
        raise
    except Exception as error:
        raise PromptError(agent, _why(error, source, variables)) from error


@lru_cache(maxsize=128)
def _template(source: _Source) -> Template:
    environment = _environment(source)
    filename = str(source.file) if source.file else None
    code = environment.compile(source.text, filename=filename)
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


def variables_of(text: str) -> frozenset[str]:
    """The variables that a template requires; none if it is malformed."""
    try:
        from jinja2 import TemplateSyntaxError, meta, nodes
    except ImportError:
        return frozenset()
    environment = _environment(_Source(text))
    try:
        tree = environment.parse(text)
    except TemplateSyntaxError:
        return frozenset()
    asked = [
        name.name
        for test in tree.find_all((nodes.Test, nodes.Filter))
        if test.name in {"defined", "undefined", "default", "d"}
        for name in test.find_all(nodes.Name)
    ]
    known = {"ctx", *asked, *environment.globals}
    return frozenset(meta.find_undeclared_variables(tree) - known)


def _environment(source: _Source) -> Environment:
    try:
        importlib.import_module("jinja2")  # handrail's `templates` may be loaded without it
        from handrail.agents.templates import environment
    except ImportError as error:
        raise MissingExtra("The prompt of an agent", "jinja2", "agents") from error
    return environment(source.file.parent if source.file else None)


def _why(error: Exception, source: _Source, variables: Mapping[str, Any]) -> str:
    """What went wrong in the template, at which line, and what to do."""
    import jinja2

    match error:
        case jinja2.TemplateSyntaxError():
            place = _place(error.filename, error.lineno, source)
            return f"{place}: {(error.message or '').rstrip('.')}. {_RAW}"
        case jinja2.TemplateNotFound():
            return f"{_place_of(error, source)}: {_not_included(error, source)}"
        case jinja2.UndefinedError():
            names = sorted(map(str, variables))
            meant = did_you_mean(_UNDEFINED.findall(str(error)), names)
            return f"{_place_of(error, source)}: {error}.{meant} It can use: {', '.join(names)}."
        case _:
            return f"{_place_of(error, source)}: {type(error).__name__}: {error}"


_RAW = "Text with braces that is no template goes between {% raw %} and {% endraw %}."


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
        if "__jinja_exception__" in frame.f_globals:  # Jinja2's mark for lines of templates
            found = (frame.f_code.co_filename, line)
    return _place(*found, source)


def _place(filename: str | None, line: int, source: _Source) -> str:
    of = f" {filename or source.file}" if source.file else ""
    return f"prompt{of}, line {line}" if line else f"prompt{of}"


_QUOTED_CHARS = 5_000
KEPT_CHARS = 4_000
"""How much of an answer is kept for quoting; a line of its own says how much is left out."""
_SHOWN_CHARS = 300


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    """The prompt, followed by the form that the answer must have."""
    shown = json.dumps(schema, indent=2, ensure_ascii=False)
    return (
        f"{prompt.rstrip()}\n\n"
        f"End your answer with one JSON value that fits this JSON schema:\n\n"
        f"```json\n{shown}\n```"
    )


def reask_prompt(task: str, answer: str, reason: str, *, remembered: bool) -> str:
    """The prompt after an answer that did not fit.

    If the backend does not remember the conversation, the prompt repeats task and answer.
    """
    refusal = (
        f"Your answer was not accepted: {reason.rstrip('.')}.\n"
        f"Answer again, in the form that was asked for."
    )
    if remembered:
        return refusal
    return f"{task}\n\nYou answered:\n\n{both_ends(answer, _QUOTED_CHARS)}\n\n{refusal}"


def launch_prompt(task: str, launch: Launch, *, remembered: bool) -> str:
    """The prompt of one launch; ``remembered``: it continues a session that knows the task.

    Once people have guided the agent, their words are part of the task wherever it is repeated.
    """
    task = with_guidance(task, (*launch.said, *launch.guidance))
    match launch.form or launch.rung:
        case "guide" if remembered and launch.session:
            return guidance_prompt(launch.guidance)
        case "start" | "fallback" | "guide":
            return task
        case "reask":
            again = reask_prompt(task, launch.answer, launch.reason, remembered=remembered)
            return with_guidance(again, launch.guidance) if remembered else again
        case "reframe":
            return restart_prompt(task, launch.reason)
        case "summarise":
            return continuation_prompt(task, launch.answer)
        case "resume" | "retry" | "wait" | "compact":
            return resume_prompt(task, launch.reason) if remembered and launch.session else task


def with_guidance(text: str, said: Sequence[str]) -> str:
    """A text followed by the guidance of people."""
    if not said:
        return text
    words = "\n\n".join(one.strip() for one in said)
    return f"{text}\n\nA person who looks on says:\n\n{words}"


def guidance_prompt(said: Sequence[str]) -> str:
    """The prompt that continues a session which was interrupted for a person's guidance."""
    words = "\n\n".join(one.strip() for one in said)
    return (
        f"{words}\n\n(A person who looks on says this, and you were interrupted for it. Go on with "
        f"your task from where you stopped, and answer in the form that was asked for.)"
    )


def resume_prompt(task: str, reason: str) -> str:
    """The prompt that continues an interrupted session."""
    return (
        f"You were interrupted: {reason.rstrip('.')}. Go on with the task below from where you "
        f"stopped: see first what is done already, and do not do it twice.\n\n{task}"
    )


def continuation_prompt(task: str, answer: str) -> str:
    """The prompt for a new session, after one that became too long."""
    done = both_ends(answer, _QUOTED_CHARS)
    if not done:
        return task
    return (
        f"{task}\n\nAn earlier session worked on this and became too long to go on. The end of "
        f"what it said and did:\n\n{done}\n\nSee first what is done already, and go on from there."
    )


def restart_prompt(task: str, reason: str) -> str:
    """The prompt for a new session, after answers that did not fit."""
    return (
        f"Read the whole task before you begin, and at the end give the answer in exactly the form "
        f"that it asks for, and nothing after it. Earlier answers were not accepted: "
        f"{reason.rstrip('.')}.\n\n{task}"
    )


def rejection_reason(wanted: str, turns: int, reason: str, answer: str) -> str:
    """Why handrail gave up on the agent's answers, for the person who wrote the agent."""
    times = f"{turns} turn{'s' * (turns != 1)}"
    said = short_repr(answer, _SHOWN_CHARS) if answer.strip() else "empty"
    return (
        f"no answer fits {wanted} after {times}: {reason.rstrip('.')}. The last answer was {said}. "
        f"Say in the prompt what the answer must hold, or allow more turns with max_reasks=."
    )


def both_ends(text: str, limit: int) -> str:
    """``text``, or its beginning and end, with a line between that says how much is left out."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = shortened(text, limit // 2, mark="")
    tail = shortened(text, limit // 2, keep="tail", mark="")
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[... {left_out} characters left out ...]\n{tail}"


CHARS_PER_TOKEN = 4
"""A rule of thumb; only the model knows its tokens."""
_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules"})
_LOOKED_AT = 8_192


def _texts(given: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(one) for one in given)


@attrs.frozen
class Files:
    """Files and folders for an agent to read: paths, and how many bytes of them at most.

    Relative paths start at the agent's working folder. A folder stands for all its text files, in
    the order of their paths, except hidden ones, ``__pycache__`` and ``node_modules``. Files that
    do not fit into ``max_bytes`` in all, or into ``max_file_bytes`` each, are named and left out.
    """

    paths: tuple[str, ...] = attrs.field(converter=_texts)
    max_bytes: int = attrs.field(default=200_000, kw_only=True)
    max_file_bytes: int = attrs.field(default=100_000, kw_only=True)


def with_sections(task: str, *sections: str) -> str:
    """The task, preceded by the non-empty sections."""
    shown = [section for section in sections if section]
    return "\n\n".join([*shown, f"# Your task\n\n{task}"]) if shown else task


def results_section(
    mode: ContextMode, results: Mapping[str, StepResult[Any]], max_tokens: int
) -> str:
    """The results that the mode selects: the last one, or the latest that fit; empty if none."""
    if mode == "explicit":
        return ""
    shown: list[str] = []
    left = max_tokens * CHARS_PER_TOKEN
    for result in _latest_first(results):
        text = text_of(result.output)
        if not text:
            continue
        section = f"## {result.path}\n\n{both_ends(text, max(left, 0))}"
        if shown and len(section) > left:
            break
        shown.append(section)
        left -= len(section)
        if mode == "last" or left <= 0:
            break
    return "\n\n".join(["# Results so far", *reversed(shown)]) if shown else ""


def _latest_first(results: Mapping[str, StepResult[Any]]) -> Iterator[StepResult[Any]]:
    for path in reversed(list(results)):
        result = results[path]
        if result.status in {"succeeded", "defaulted"}:
            yield result


def files_section(files: Sequence[Files], folder: Path, agent: str) -> str:
    """The text of files; empty without files.

    Raises:
        PromptError: one of the paths does not exist or cannot be read.
    """
    sections = [section for wanted in files for section in _sections(wanted, folder, agent)]
    return "\n\n".join(["# Files", *sections]) if sections else ""


def _sections(wanted: Files, folder: Path, agent: str) -> Iterator[str]:
    left = wanted.max_bytes
    left_out: list[str] = []
    for path in _expand_paths(wanted.paths, folder, agent):
        name = _name(path, folder)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PromptError(agent, f"its file {name!r} cannot be read: {error}") from error
        if b"\0" in data[:_LOOKED_AT]:
            continue
        if len(data) > min(left, wanted.max_file_bytes):
            left_out.append(f"{name} ({len(data)} bytes)")
            continue
        left -= len(data)
        yield f"## {name}\n\n{_fence(data.decode('utf-8', 'replace'))}"
    if left_out:
        yield f"Left out, because they are too large: {', '.join(left_out)}"


def _expand_paths(paths: Iterable[str], folder: Path, agent: str) -> Iterator[Path]:
    for given in paths:
        path = folder / given
        if path.is_dir():
            yield from _files_below(path)
        elif path.is_file():
            yield path
        else:
            raise PromptError(agent, f"its file {given!r} does not exist in {folder}")


def _files_below(folder: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _SKIPPED_DIRS
        )
        for name in sorted(names):
            path = Path(above, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _fence(text: str) -> str:
    """The text between fences that do not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def files_of(given: Files | Sequence[str | os.PathLike[str]], whose: str) -> tuple[Files, ...]:
    """The files, from a list of paths or a ``Files``."""
    if isinstance(given, Files):
        return (given,)
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise DefinitionError(
            f"{whose}: files= takes a list of paths, or Files([...]), got {given!r}"
        )
    return (Files(tuple(os.fspath(one) for one in given)),) if given else ()
