"""The commands and their options; what each does is in a module that is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from handrail import __version__
from handrail.cli.exits import EXIT_CODES

app = App(
    name="handrail",
    help=f"Agent workflows as plain Python generator functions.\n\n{EXIT_CODES}\n\n"
    "`--debug` (or `HANDRAIL_DEBUG=1`) adds tracebacks to errors.",
    version=__version__,
    version_flags=["--version"],
    default_parameter=Parameter(negative=()),
)

Json = Annotated[bool, Parameter(name="--json")]


@app.command(help=f"Run a workflow.\n\n{EXIT_CODES}")
def run(
    target: str,
    /,
    *,
    input: Annotated[list[str] | None, Parameter(name="--input")] = None,  # noqa: A002
    inputs: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    as_json: Json = False,
    quiet: bool = False,
    gates: Literal["approve", "default", "fail", "ask"] | None = None,
) -> int:
    """Run a workflow.

    Parameters
    ----------
    target
        `file.py:name` or `module:name`; the name may be left out if there is one workflow.
    input
        An input as `name=value`, converted by its annotation (lists and objects are JSON);
        repeatable.
    inputs
        A JSON or TOML file of inputs (`-`: JSON on stdin); --input wins over it.
    as_json
        Print the result as JSON on stdout, and the progress on stderr.
    quiet
        Print no progress.
    gates
        Who answers questions: approve (the first choice), default, fail, or ask (stdin). By default
        whoever sits at the terminal; without one the run is suspended.
    """
    from handrail.cli.run import Options
    from handrail.cli.run import run as run_target

    options = Options(as_json=as_json, quiet=quiet, gates=gates)
    return run_target(target, input or [], inputs, options)


@app.command(name="list")
def list_(path: Path = Path(), /, *, as_json: Json = False) -> int:
    """List the workflows in Python files, without importing them.

    Parameters
    ----------
    path
        A file, or a folder that is searched with all below it.
    as_json
        Print a JSON list.
    """
    from handrail.cli.listing import list_workflows

    return list_workflows(path, as_json=as_json)


@app.command
def show(target: str, /, *, as_json: Json = False) -> int:
    """Show a workflow's inputs and steps.

    Parameters
    ----------
    target
        `file.py:name` or `module:name`.
    as_json
        Print `describe()` as JSON.
    """
    from handrail.cli.show import show as show_target

    return show_target(target, as_json=as_json)


@app.command
def graph(
    target: str,
    /,
    *,
    form: Annotated[Literal["mermaid", "text"], Parameter(name="--format")] = "mermaid",
) -> int:
    """Draw a workflow from its source, without running it.

    Parameters
    ----------
    target
        `file.py:name` or `module:name`.
    form
        A Mermaid flowchart, or a tree for the terminal.
    """
    from handrail.cli.graph import graph as graph_target

    return graph_target(target, form)


@app.command
def check(paths: Annotated[list[Path], Parameter()], /, *, as_json: Json = False) -> int:
    """Look for mistakes in workflows, without importing them; exit code 1 if there are any.

    Parameters
    ----------
    paths
        Files, or folders that are searched with all below them.
    as_json
        Print a JSON list of findings.
    """
    from handrail.cli.check import check as check_paths

    return check_paths(paths, as_json=as_json)


@app.command
def init(name: str, /) -> int:
    """Write a new workflow, NAME.py, and its test, test_NAME.py.

    Parameters
    ----------
    name
        A Python name, which may have a folder in front: `flows/review`.
    """
    from handrail.cli.init import init as write_workflow

    return write_workflow(name)


@app.command
def quickstart(folder: Path | None = None, /) -> int:
    """Watch a workflow repair a small real repository, with scripted agents.

    Parameters
    ----------
    folder
        Where to make the repository: an empty or new folder; by default a new temporary one.
    """
    from handrail.cli.quickstart import quickstart as start

    return start(folder)
