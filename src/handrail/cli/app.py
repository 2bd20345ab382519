"""The commands, each a function of its name, and the modules that they are in.

Only the module of the typed command is imported. For a list of all commands, their summaries are
read from the source of their modules.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cyclopts import App, Parameter

from handrail import addons
from handrail.cli.exits import EXIT_CODES
from handrail.errors import DefinitionError, MissingExtra

_MODULES: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "resume", "cancel"),
    "listing": ("list",),
    "show": ("show", "runs", "tail"),
    "check": ("check", "graph"),
    "init": ("init",),
    "skill": ("skill",),
    "quickstart": ("quickstart",),
    "doctor": ("doctor",),
    "plan": ("plan",),
    "answer": ("answer", "signal"),
    "steer": ("pause", "unpause", "complete", "skip", "retry", "guide", "stop"),
    "work": ("work",),
    "history": ("fork", "diff", "export", "import", "replay", "verify", "prune"),
    "markdown": ("report",),
    "trust": ("trust",),
    "worker": ("worker",),
    "claims": ("claims", "claim", "release", "lock"),
    "guard": ("guard",),
    "sandbox": ("sandbox",),
    "worktrees": ("worktrees",),
}
COMMANDS: Mapping[str, str] = {name: module for module, names in _MODULES.items() for name in names}
"""The module of each command; other packages register more of them (``addons``)."""


STEERING = frozenset({
    *("resume", "cancel", "answer", "signal", "pause", "unpause", "complete", "skip", "retry"),
    *("guide", "stop", "fork", "import", "prune", "worker", "release", "worktrees", "trust"),
})  # fmt: skip
"""Commands that steer runs, or take from others: what a step started cannot use them on runs of
the step's journal. ``release`` and ``worktrees`` are of these only with ``--force``, ``--prune``.
"""
NOT_STEERING = frozenset({
    *("run", "list", "show", "runs", "tail", "check", "graph", "init", "quickstart", "doctor"),
    *("plan", "work", "diff", "export", "replay", "verify", "report", "claims", "claim"),
    *("lock", "guard", "sandbox", "skill"),
})  # fmt: skip
"""The others. What ``work``, ``claim`` and ``lock`` do is recorded as the step's."""


def app_of(words: Sequence[str]) -> App:
    """The command-line application, for the words that were typed."""
    app = App(
        name="handrail",
        help=f"Agent workflows as plain Python generator functions.\n\n{EXIT_CODES}\n\n"
        "`--debug` (or `HANDRAIL_DEBUG=1`) adds tracebacks to errors. `--version` alone prints the "
        "version.",
        suppress_keyboard_interrupt=False,
        version_flags=[],  # alone it is answered before; with other words it may be an input
        default_parameter=Parameter(negative=()),
    )
    # where the command comes first, as it should, nothing is asked of the others
    known = COMMANDS if words and words[0] in COMMANDS else (*COMMANDS, *added())
    typed = next((word for word in words if word in known), None)
    for name in words[:1] if typed in words[:1] else known:
        if name == typed == "run":
            app.command(import_command(name), name=name, help=f"{summary_of(name)}\n\n{EXIT_CODES}")
        elif name == typed:
            app.command(import_command(name), name=name)
        else:
            app.command(App(name=name, help=summary_of(name) if typed is None else ""))
    return app


def added() -> Sequence[str]:
    """The commands that packages have registered, and that are not of the house."""
    return [name for name in addons.names(addons.COMMANDS) if name not in COMMANDS]


def import_command(name: str) -> Any:
    """The function of a command, or its ``App`` if it has subcommands.

    Raises:
        DefinitionError: a package has registered it, and it cannot be imported. MissingExtra: it
            needs a library.
    """
    if name not in COMMANDS:
        return addons.load(addons.COMMANDS, name)
    module = import_module(f"handrail.cli.{COMMANDS[name]}")
    known = (f"{name}_app", name, f"{name}_")  # `list` and `import` are Python's
    return next(getattr(module, one) for one in known if hasattr(module, one))


def summary_of(name: str) -> str:
    """The first paragraph of a command's docstring."""
    if name in COMMANDS:
        known = _docstrings(Path(__file__).with_name(f"{COMMANDS[name]}.py"))
        said = known.get(name) or known.get(f"{name}_") or ""
    else:
        try:
            command = import_command(name)
        except MissingExtra as error:
            return _without_extra(name, error)
        except DefinitionError as error:
            return str(error)
        said = str(command.help) if isinstance(command, App) else inspect.getdoc(command) or ""
    return said.partition("\n\n")[0]


def _without_extra(name: str, error: MissingExtra) -> str:
    """The summary of a command that cannot be imported until an extra is installed."""
    where = addons.registered(addons.COMMANDS)[name]
    file, function = addons.source_of(where), where.partition(":")[2]
    said = "" if file is None else _docstrings(file).get(function, "").partition("\n\n")[0]
    return f"{said} (needs handrail[{error.extra}])" if said else str(error)


@cache
def _docstrings(file: Path) -> Mapping[str, str]:
    """The docstrings of a module's functions, read from its source without importing it."""
    functions = (
        one for one in ast.parse(file.read_text("utf-8")).body if isinstance(one, ast.FunctionDef)
    )
    return {function.name: ast.get_docstring(function) or "" for function in functions}
