"""Finds the workflow that a TARGET names: ``file.py:name`` or ``module:name``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import tokenize
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from handrail import addons
from handrail.cli.channels import tell
from handrail.cli.exits import Refused
from handrail.cli.journal import VARIABLE, Place, place_at, with_executor
from handrail.cli.trusted import (
    allows,
    known_journal,
    note_journal,
    require_own,
    require_own_project,
)
from handrail.errors import did_you_mean
from handrail.model.definition import WorkflowDefinition
from handrail.ports.journal import IMPORTED, RunInfo
from handrail.project import project_table
from handrail.static.source import Source
from handrail.system.own_files import FOLDER

if TYPE_CHECKING:
    from handrail import Executor


def import_file(path: Path) -> ModuleType:
    """The module of a file; that of Python is imported under the name it has for other code.

    Its folder is put first on ``sys.path``, as if Python ran the file. For a file in a package it
    is the folder around the package, so that relative imports work.

    Raises:
        Refused: there is no such file, or its import fails.
    """
    file = path.resolve()
    if not file.is_file():
        hint = f"There is {near}." if (near := _similar_file(file)) else ""
        raise Refused(str(path), "there is no such file", hint)
    if (reader := addons.reader_of(path)) is not None:
        made: ModuleType = reader.module(path)
        return made
    root, name = _root_and_name(file)
    find_from(root)
    if "." in name:
        return import_module(name)
    return _import_or_refuse(str(path), lambda: _load_file(file, name))


def import_module(name: str) -> ModuleType:
    """A module by its dotted name.

    Raises:
        Refused: there is none, or its import fails.
    """
    try:
        spec = _spec_of(name)
    except Exception as error:  # a package around it may raise anything
        raise _import_refusal(name, error) from error
    if spec is None:
        as_file = Path(*name.split(".")).with_suffix(".py") if name.strip(".") else Path(name)
        hint = f"Did you mean {as_file}?" if as_file.is_file() else "Files end in .py."
        raise Refused(f"module {name!r}", "there is no such file or module", hint)
    return _import_or_refuse(name, lambda: importlib.import_module(name))


def is_module(name: str) -> bool:
    """True if a module of this name can be imported from the current folder; does not import it."""
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    find_from(Path.cwd())
    try:
        return _spec_of(name) is not None
    except Exception:  # noqa: BLE001  # a package around it raises: the import names the error
        return True


def find_from(folder: Path) -> None:
    """Put a folder first on ``sys.path``, unless it is there already."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    except ValueError:  # `..x`, or a module without a spec, such as __main__
        return None


def _root_and_name(file: Path) -> tuple[Path, str]:
    """The folder from which the file is imported, and its dotted name from there."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _load_file(file: Path, name: str) -> ModuleType:
    taken = sys.modules.get(name)
    if taken is not None:
        if getattr(taken, "__file__", None) == str(file):
            return taken
        name = f"{name}_workflow"  # a file may be called json.py; the module json stays what it is
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise Refused(str(file), "is not a Python file", "Its name should end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_or_refuse(what: str, importing: Callable[[], ModuleType]) -> ModuleType:
    try:
        return importing()
    except Refused:
        raise
    except SystemExit as error:
        why = f"it ended the process when it was imported (exit {error.code})"
        hint = 'Put what runs it below `if __name__ == "__main__":`.'
        raise Refused(what, why, hint) from error
    except Exception as error:
        raise _import_refusal(what, error) from error


def _import_refusal(what: str, error: Exception) -> Refused:
    said = str(error).rstrip(".") or "no reason given"
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}" if error.filename else what  # of null bytes
        return Refused(place, f"{kind}: {error.msg}")
    return Refused(_line_of(what, error), f"{kind}: {said}")


def _line_of(what: str, error: Exception) -> str:
    """``file:line`` of the last line of the target's own file that the error passed through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen ") and frame.filename != __file__
    ]
    own = [frame for frame in frames if Path(frame.filename).name == Path(what).name]
    chosen = (own or frames)[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else what


def _similar_file(file: Path) -> str:
    """A Python file beside one that is missing, whose name is close to it."""
    there = [one.name for one in file.parent.glob("*.py")] if file.parent.is_dir() else []
    near = difflib.get_close_matches(file.name, there, n=1)
    return near[0] if near else ""


Workflows = Mapping[str, Any]
"""The workflows of a module by the names they have in it."""


def load(target: str) -> Any:
    """The workflow that a TARGET names; its file or module is imported.

    Raises:
        Refused: there is no such file, module or workflow, or its import fails.
    """
    place, name = split(target)
    module = _import_place(place)
    workflows = workflows_of(module)
    if not name:
        return _only_workflow(place, workflows)
    if is_workflow(chosen := getattr(module, name, None)):
        return chosen
    return _find_by_title(place, name, module, workflows)


def load_object(target: str, whose: str) -> Any:
    """The object that ``file.py:name`` or ``module:name`` names.

    Raises:
        Refused: there is no such thing.
    """
    place, name = split(target)
    module = _import_place(place)
    if not name or not hasattr(module, name):
        raise Refused(f"{whose} {target!r}", "was not found", "Write file.py:name or module:name.")
    return getattr(module, name)


def place_of(
    wanted: Path | None,
    executor: str | None = None,
    named_at: Mapping[str, str | None] | None = None,
    *,
    reads: bool = False,
) -> Place:
    """The place of the runs, as the options, the environment and the project say.

    If the command ``reads``, the executor that the project names is not loaded: see ``trusted``.

    The folder is that of ``--dir``; else of the journal of the executor that ``--executor`` or the
    project names; else of ``HANDRAIL_DIR``; else ``.handrail`` here. What is
    ``named_at`` an option of a registered journal comes first; its address in the environment
    (``HANDRAIL_NAME``) or the project only if no folder is named.

    Raises:
        Refused: there is no such executor. DefinitionError: the project's table is wrong.
    """
    named = wanted or os.environ.get(VARIABLE)
    typed = "" if wanted is None else str(wanted)
    place = Place(Path(named or FOLDER).resolve(), typed, named=named is not None)
    table = project_table()
    if executor is not None:
        place = attrs.evolve(place, typed_executor=executor)
        place = with_executor(place, load_executor(executor))
    else:
        place = _place_of_project(place, table, reads=reads)
    for kind in addons.names(addons.JOURNALS):
        typed = (named_at or {}).get(kind) or ""
        known = None if named else os.environ.get(f"HANDRAIL_{kind.upper()}") or table.get(kind)
        if address := typed or known:
            return place_at(place, kind, address, typed)
    return place


def _place_of_project(place: Place, table: Mapping[str, Any], *, reads: bool) -> Place:
    """The place with the project's executor, or where that kept its runs when it last ran."""
    if not reads:
        require_own_project(table)
    target: str | None = table.get("executor")
    if target is None:
        return place
    try:
        if not reads:
            executor = load_executor(target)
            note_journal(table, executor)
            return with_executor(place, executor)
        _require_file(split(target)[0])
    except Refused as error:
        where = f"[tool.handrail] executor of {table['file']}"
        raise Refused(where, str(error).rstrip(".")) from error
    known = None if place.typed_location else known_journal(table)
    if known is None:
        unread = attrs.evolve(place, unread_executor=target)
        if place.is_there() or not allows(f"Run {target} to find the runs of this project?"):
            return unread
        return _place_of_project(place, table, reads=False)
    return attrs.evolve(place, folder=known.parent, kept=known)


def _require_file(place: str) -> None:
    if is_file(place) and not Path(place).is_file():
        raise Refused(place, "there is no such file")


def load_executor(target: str) -> Executor:
    """The executor at ``file.py:name`` or ``module:name``, or the one that a function there makes.

    Raises:
        Refused: there is none, or making it fails.
    """
    place, name = split(target)
    if not name:
        raise Refused(f"executor {target!r}", "is not file.py:name or module:name")
    module = _import_place(place)
    hint = "Name an Executor, or a function without arguments that returns one."
    if not hasattr(module, name):
        raise Refused(f"executor {target!r}", f"was not found: {place} has no {name!r}", hint)
    found = _build_executor(target, getattr(module, name))
    if found is None:
        raise Refused(f"executor {target!r}", "is not an executor", hint)
    return found


def _build_executor(target: str, value: Any) -> Executor | None:
    from handrail import Executor

    if isinstance(value, Executor):
        return value
    if is_workflow(value) or isinstance(value, type) or not callable(value):
        return None
    try:
        made = _call_once(value)
    except Exception as error:
        raise _import_refusal(target.rpartition(":")[0], error) from error
    return made if isinstance(made, Executor) else None


@lru_cache(maxsize=8)
def _call_once(make: Callable[[], Any]) -> Any:
    """What a function makes; what it opens for that is opened once."""
    return make()


def load_with_executor(target: str, named: str | None = None) -> tuple[Any, Executor | None]:
    """The workflow that a TARGET names, and the executor if the TARGET names an executor.

    Of several workflows, of the executor or of a TARGET without a name, the ``named`` one counts.

    Raises:
        Refused: as ``load``, or the executor has no such workflow, or not just one.
    """
    place, name = split(target)
    value = getattr(_import_place(place), name, None) if name else None
    made = None if value is None or is_workflow(value) else _build_executor(target, value)
    if made is None and not name:
        there = workflows_of(_import_place(place)).values()
        chosen = [one for one in there if one.definition.name == named]
        return chosen[0] if len(chosen) == 1 else load(target), _executor_of(place)
    if made is None:
        return load(target), _executor_of(place)
    found = [workflow for workflow in made.workflows if named in {None, workflow.definition.name}]
    if len(found) != 1:
        names = ", ".join(workflow.definition.name for workflow in made.workflows) or "none"
        hint = f"It has: {names}. Name the workflow, and this with --executor {target}."
        what = "not just one workflow" if named is None else f"no workflow {named!r}"
        raise Refused(target, f"is an executor that has {what}", hint)
    return found[0], made


def _executor_of(place: str) -> Executor | None:
    """The executor that a file asks for which is not of Python."""
    return getattr(_import_place(place), "__executor__", None)


def split(target: str) -> tuple[str, str]:
    """The file or module of a TARGET, and the name in it, or no name."""
    if ":" not in target or Path(target).exists():
        return target, ""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise Refused(f"TARGET {target!r}", "is not file.py:name or module:name")
    return place, name


def is_workflow(value: object) -> bool:
    """True for what ``@workflow`` returns."""
    return isinstance(getattr(value, "definition", None), WorkflowDefinition)


def workflows_at(target: str) -> list[Any]:
    """The workflow that a TARGET names, or all those of its file or module.

    Raises:
        Refused: as ``load``, or there is none in it.
    """
    place, name = split(target)
    if name:
        return [load(target)]
    found = list(workflows_of(_import_place(place)).values())
    if not found:
        why = "has no workflow (a workflow is a generator function with @workflow)"
        raise Refused(place, why)
    return found


def workflows_of(module: ModuleType) -> dict[str, Any]:
    """The workflows that a module defines; those it imported from elsewhere are left out."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if is_workflow(value) and value.definition.function.__module__ == module.__name__:
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def is_file(place: str) -> bool:
    """True if the first part of a TARGET is the path of a file, and no module's name."""
    path = Path(place)
    known = path.suffix == ".py" or addons.reader_of(path) is not None
    return known or os.sep in place or place in {".", ".."} or path.is_file()


def _import_place(place: str) -> ModuleType:
    path = Path(place)
    if is_file(place):
        if path.is_dir():
            hint = f"handrail list {place} shows the workflows below it."
            raise Refused(place, "is a folder, not a Python file", hint)
        return import_file(path)
    find_from(Path.cwd())
    return import_module(place)


def _only_workflow(place: str, workflows: Workflows) -> Any:
    if len(workflows) == 1:
        return next(iter(workflows.values()))
    if not workflows:
        why = "defines no workflow"
        raise Refused(place, why, "A workflow is a generator function with @workflow above it.")
    listed = ", ".join(f"{place}:{name}" for name in workflows)
    raise Refused(place, f"defines {len(workflows)} workflows", f"Say which: {listed}.")


def _find_by_title(place: str, name: str, module: ModuleType, workflows: Workflows) -> Any:
    """The workflow with this name of its own; the module has no workflow under this attribute."""
    titled = [workflow for workflow in workflows.values() if workflow.definition.name == name]
    if len(titled) == 1:
        return titled[0]
    if hasattr(module, name):
        hint = "A workflow is a generator function with @workflow above it."
        raise Refused(f"{place}:{name}", "is not a workflow", hint)
    raise Refused(place, f"has no workflow {name!r}", f"It has: {names_and_guess(workflows, name)}")


def names_and_guess(names: Sequence[str] | Workflows, wanted: str) -> str:
    """The existing names, and the one that was probably meant."""
    return f"{', '.join(names) or 'none'}.{did_you_mean([wanted], list(names))}"


# The TARGET, the executor that was typed, and the folder that a run was started from, recorded as
# labels for a resume.
#
# A file is recorded relative to the parent of the journal's folder, if it is below that, so that a
# project may be moved; a module by its name. The current folder is recorded if it is not that
# parent: a resumed run continues in the folder that it was started in.

TARGET = "target"
_EXECUTOR = "executor"
_IN = "folder"


def labels_of(target: str, workflow: Any, place: Place) -> dict[str, str]:
    """The labels to record of a run that is started from the current folder."""
    where, name = split(target)
    labels = {TARGET: _recorded(where, name or _name_of(workflow), place)}
    if place.typed_executor:
        labels[_EXECUTOR] = _recorded(*split(place.typed_executor), place)
    here = Path.cwd().resolve()
    if here != place.base:
        labels[_IN] = _relative(here, place)
    return labels


def workflow_of(
    info: RunInfo, place: Place, target: str | None = None, *, quiet: bool = False
) -> tuple[Any, Place]:
    """The workflow of a run, imported from its recorded TARGET, or from another one; and the place.

    A run without a recorded TARGET takes its workflow from the place's executor. A place without
    one gets the executor that the TARGET names, or that was typed when the run was started. Before
    it imports the recorded TARGET, it prints that unless ``quiet``, and changes to the folder that
    the run was started in.

    Raises:
        Refused: the workflow is not known, or there is no such file, module or workflow.
    """
    place = reaching(place, info, target)
    if target is not None:
        return _with_executor(place, info, *load_with_executor(target, info.workflow_name))
    recorded = info.labels.get(TARGET)
    if recorded is None:
        known = () if place.executor is None else place.executor.workflows
        for one in known:
            if one.definition.name == info.workflow_name:
                return one, place
        why = "was not started by this command, so its workflow is not known"
        hint = f"Name it: --target {place.target}, or its executor: --executor FILE.py:NAME."
        raise Refused(f"run {info.run_id}", why, hint)
    found = _absolute(recorded, place)
    _require_begun_here(info, place)
    _require_in_project(found, info, place)
    _require_own(found, asks=not quiet)
    _change_folder(place.base / info.labels.get(_IN, ""))
    if not quiet:
        tell(f"run {info.run_id} of {recorded}")
    try:
        workflow, executor = load_with_executor(found, info.workflow_name)
    except Refused as error:
        hint = f"{error.hint} If it is elsewhere now: --target file.py:name.".strip()
        raise Refused(error.what, error.why, hint) from error
    return _with_executor(place, info, workflow, executor)


def reaching(place: Place, info: RunInfo, target: str | None = None) -> Place:
    """The place whose commands reach the run's workflow: by the typed ``target``, if it was.

    They name a workflow for a run that was not started by this command, unless the place's executor
    has it: the only one of that name in the files of the current folder, which are read and not
    imported. Of other runs they name what is not run unless it is typed (``reaching_labels``).
    """
    if target is None and TARGET not in info.labels:
        known = () if place.executor is None else place.executor.workflows
        if all(one.definition.name != info.workflow_name for one in known):
            target = _named_here(info.workflow_name) or f"FILE.py:{info.workflow_name}"
    return reaching_labels(attrs.evolve(place, target=target), info.labels)


def reaching_labels(place: Place, labels: Mapping[str, str]) -> Place:
    """The place whose commands name what is recorded in these labels, where that is not run unless
    a person types it: code of elsewhere, and that of an imported run.
    """
    target, executor = labels.get(TARGET), labels.get(_EXECUTOR)
    imported = IMPORTED in labels
    if place.target is None and target is not None:
        found = _absolute(target, place)
        if imported or not _is_in_project(found, place):
            place = attrs.evolve(place, target=_as_typed(found))
    if place.executor is None and executor is not None and not imported:
        found = _absolute(executor, place)
        if not _is_in_project(found, place):
            place = attrs.evolve(place, typed_executor=_as_typed(found))
    return place


def _named_here(name: str) -> str | None:
    """The TARGET of the only workflow of this name in the files of the current folder, if any."""
    from handrail.static.lint import workflows_in
    from handrail.static.source import SourceUnavailable

    found: list[str] = []
    for file in sorted(Path().glob("*.py")):
        with suppress(OSError, SyntaxError, UnicodeDecodeError, SourceUnavailable):
            text = file.read_text("utf-8")
            if name in text and name in workflows_in(text, str(file)):
                found.append(f"{file}:{name}")
    return found[0] if len(found) == 1 else None


def _with_executor(
    place: Place, info: RunInfo, workflow: Any, executor: Executor | None
) -> tuple[Any, Place]:
    if place.executor is not None:
        return workflow, place
    typed = info.labels.get(_EXECUTOR)
    if executor is None and typed is not None and IMPORTED not in info.labels:
        found = _absolute(typed, place)
        _require_in_project(found, info, place)
        _require_own(found, asks=False)
        executor = load_executor(found)
    return workflow, attrs.evolve(place, executor=executor)


def _require_begun_here(info: RunInfo, place: Place) -> None:
    """Raise for an imported run: what it says of its code was said elsewhere, by anybody.

    Raises:
        Refused: it was imported.
    """
    if IMPORTED in info.labels:
        why = f"was imported from {info.labels[IMPORTED]}, so the code that it names is not run"
        raise Refused(f"run {info.run_id}", why, _how_to_type(info, place))


def _how_to_type(info: RunInfo, place: Place) -> str:
    again = reaching(place, info).command("resume", info.run_id)
    return f"If you trust that code, type its name, as in: {again}"


def _require_in_project(target: str, info: RunInfo, place: Place) -> None:
    """Raise unless a recorded TARGET lies where its code may be run without being named.

    That is below the journal's parent, the project, the current folder, or where Python looks for
    modules anyway. A journal may come from anybody.

    Raises:
        Refused: it does not.
    """
    if not _is_in_project(target, place):
        why = f"its code is {target}, which is outside of {place.base} and so is not run unasked"
        raise Refused(f"run {info.run_id}", why, _how_to_type(info, place))


def _is_in_project(target: str, place: Place) -> bool:
    where, _ = split(target)
    if not is_file(where):
        return True
    file = Path(where).resolve()
    project = project_table()["file"]
    checkout = [one for one in (place.base, *place.base.parents) if (one / ".git").exists()][:1]
    roots = {place.base, Path.cwd(), *checkout, *([Path(project).parent] if project else [])}
    return any(file.is_relative_to(root.resolve()) for root in roots)


def _require_own(target: str, *, asks: bool) -> None:
    """Raise unless the code of a recorded TARGET is the user's own, or trusted.

    Raises:
        Refused: it is not.
    """
    where, _ = split(target)
    for file in [Path(where).resolve()] if is_file(where) else _files_of_module(where):
        require_own(file, asks=asks)


def _files_of_module(name: str) -> list[Path]:
    """The files that an import of a module would run, without importing anything."""
    top, *below = name.split(".")
    spec = PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])
    folders = (spec and spec.submodule_search_locations) or ()
    inner = [Path(folder, *below) for folder in folders if below]
    found = [one for path in inner for one in (path.with_suffix(".py"), path / "__init__.py")]
    origin = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    return [one for one in (origin, *found) if one is not None and one.is_file()]


def source_of_run(info: RunInfo, place: Place) -> Source | None:
    """The source of a run's workflow at its recorded TARGET, not imported; None if it is not there.

    Raises:
        Refused: the TARGET is not in the project.
    """
    where, name = split(_absolute(target_of(info.labels), place))
    if where and not is_file(where):
        below = Path(*where.split(".")).with_suffix(".py")
        near = (one / below for one in (place.base, Path.cwd()) if (one / below).is_file())
        where = str(next(near, below))
    _require_in_project(f"{where}:{name}", info, place)
    try:
        with tokenize.open(where) as stream:
            return Source(stream.read(), where, 0, name)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def target_of(labels: Mapping[str, str]) -> str:
    """The recorded TARGET, or nothing."""
    return labels.get(TARGET, "")


def _change_folder(folder: Path) -> None:
    if not folder.is_dir():
        tell(f"the folder that the run started in is gone: {folder}. It continues in this one")
    elif folder != Path.cwd():
        tell(f"in {folder}")
        os.chdir(folder)


def _absolute(recorded: str, place: Place) -> str:
    where, _, name = recorded.rpartition(":")
    return f"{place.base / where}:{name}" if is_file(where) else recorded


def _as_typed(target: str) -> str:
    """An absolute TARGET as it is typed in the current folder; the shorter of its two names."""
    where, _, name = target.rpartition(":")
    if not is_file(where):
        return target
    file = os.path.realpath(where)
    return f"{min(os.path.relpath(file), file, key=len)}:{name}"


def _recorded(where: str, name: str, place: Place) -> str:
    """The TARGET as ``_absolute`` reads it."""
    return f"{_relative(Path(where).resolve(), place) if is_file(where) else where}:{name}"


def _relative(path: Path, place: Place) -> str:
    below = path.is_relative_to(place.base)
    return (path.relative_to(place.base) if below else path).as_posix()


def _name_of(workflow: Any) -> str:
    """The name that a workflow has in its module."""
    module = sys.modules.get(workflow.definition.function.__module__)
    names = (name for name, value in vars(module).items() if value is workflow) if module else ()
    return next(iter(names), str(workflow.definition.name))
