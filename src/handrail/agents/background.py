"""What an agent is shown besides its prompt: earlier results, files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import attrs

from handrail.agents.wording import both_ends
from handrail.errors import DefinitionError, PromptError
from handrail.model.results import AgentResult, CommandResult, StepResult
from handrail.typed.jsonsafe import json_safe

ContextMode: TypeAlias = Literal["explicit", "last", "accumulate"]
CONTEXT_MODES = ("explicit", "last", "accumulate")
CHARS_PER_TOKEN = 4
"""A rule of thumb; tokens are only known to the model."""
_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules"})
_LOOKED_AT = 8_192


def _texts(given: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(one) for one in given)


@attrs.frozen
class Files:
    """Files and folders for an agent to read: paths, and how many bytes of them at most.

    Relative paths are of the agent's working folder. Of a folder all text files count, in order of
    their paths, but not hidden ones. What does not fit into ``max_bytes`` in all, or into
    ``max_file_bytes`` by itself, is named and left out.
    """

    paths: tuple[str, ...] = attrs.field(converter=_texts)
    max_bytes: int = attrs.field(default=200_000, kw_only=True)
    max_file_bytes: int = attrs.field(default=100_000, kw_only=True)


def framed(task: str, *sections: str) -> str:
    """The task, after those of the sections that are not empty."""
    shown = [section for section in sections if section]
    return "\n\n".join([*shown, f"# Your task\n\n{task}"]) if shown else task


def results_section(
    mode: ContextMode, results: Mapping[str, StepResult[Any]], max_tokens: int
) -> str:
    """The results that the mode asks for: the last one, or the latest that fit; empty for none."""
    if mode == "explicit":
        return ""
    shown: list[str] = []
    left = max_tokens * CHARS_PER_TOKEN
    for result in _latest_first(results):
        text = _text_of(result.output)
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


def _text_of(output: Any) -> str:
    match output:
        case None:
            return ""
        case str():
            return output.strip()
        case AgentResult():
            return _text_of(cast("AgentResult[object]", output).output)
        case CommandResult():
            return output.stdout.strip()
        case _:
            import json

            return json.dumps(json_safe(output), indent=2, ensure_ascii=False)


def files_section(files: Sequence[Files], folder: Path, agent: str) -> str:
    """The text of files; empty for none.

    Raises:
        PromptError: one of the paths does not exist or cannot be read.
    """
    sections = [section for wanted in files for section in _sections(wanted, folder, agent)]
    return "\n\n".join(["# Files", *sections]) if sections else ""


def _sections(wanted: Files, folder: Path, agent: str) -> Iterator[str]:
    left = wanted.max_bytes
    left_out: list[str] = []
    for path in _found(wanted.paths, folder, agent):
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
        yield f"## {name}\n\n{_fenced(data.decode('utf-8', 'replace'))}"
    if left_out:
        yield f"Left out, because they are too large: {', '.join(left_out)}"


def _found(paths: Iterable[str], folder: Path, agent: str) -> Iterator[Path]:
    for given in paths:
        path = folder / given
        if path.is_dir():
            yield from _below(path)
        elif path.is_file():
            yield path
        else:
            raise PromptError(agent, f"its file {given!r} does not exist in {folder}")


def _below(folder: Path) -> Iterator[Path]:
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


def _fenced(text: str) -> str:
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
