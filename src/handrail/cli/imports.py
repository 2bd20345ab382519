"""Imports what a TARGET names, and says at which line of the user's code that failed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from handrail.cli.exits import Refused


def import_file(path: Path) -> ModuleType:
    """The module of a Python file, imported under the name it has for other code.

    Its folder is put first on ``sys.path``, as if Python ran the file. Of a file in a package that
    is the folder around the package, so that its relative imports work.

    Raises:
        Refused: there is no such file, or its import fails.
    """
    file = path.resolve()
    if not file.is_file():
        hint = f"There is {near}." if (near := _neighbour(file)) else ""
        raise Refused(str(path), "there is no such file", hint)
    root, name = _root_and_name(file)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if "." in name:
        return import_module(name)
    return _guarded(str(path), lambda: _from_file(file, name))


def import_module(name: str) -> ModuleType:
    """A module by its dotted name.

    Raises:
        Refused: there is none, or its import fails.
    """
    try:
        spec = _spec_of(name)
    except Exception as error:  # a package around it may raise anything
        raise _refused(name, error) from error
    if spec is None:
        as_file = Path(*name.split(".")).with_suffix(".py") if name.strip(".") else Path(name)
        hint = f"Did you mean {as_file}?" if as_file.is_file() else "Files end in .py."
        raise Refused(f"module {name!r}", "there is no such file or module", hint)
    return _guarded(name, lambda: importlib.import_module(name))


def is_module(name: str) -> bool:
    """True if a module of this name can be imported from the current folder; it is not."""
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return _spec_of(name) is not None
    except Exception:  # noqa: BLE001  # a package around it, which is then the one to be named
        return True


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    except ValueError:  # `..x`, or a module without a spec, such as __main__
        return None


def _root_and_name(file: Path) -> tuple[Path, str]:
    """Where an import of this file starts, and its dotted name from there."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _from_file(file: Path, name: str) -> ModuleType:
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


def _guarded(what: str, importing: Callable[[], ModuleType]) -> ModuleType:
    try:
        return importing()
    except Refused:
        raise
    except SystemExit as error:
        why = f"it ended the process when it was imported (exit {error.code})"
        hint = 'Put what runs it below `if __name__ == "__main__":`.'
        raise Refused(what, why, hint) from error
    except Exception as error:
        raise _refused(what, error) from error


def _refused(what: str, error: Exception) -> Refused:
    said = str(error).rstrip(".") or "no reason given"
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return Refused(f"{error.filename}:{error.lineno}", f"{kind}: {error.msg}")
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


def _neighbour(file: Path) -> str:
    """A Python file beside one that is missing, whose name is close to it."""
    import difflib

    there = [one.name for one in file.parent.glob("*.py")] if file.parent.is_dir() else []
    near = difflib.get_close_matches(file.name, there, n=1)
    return near[0] if near else ""
