"""``handrail quickstart``: the shipped example at work on a small real repository."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import attrs

import handrail
from handrail.cli.driving import Options, drive
from handrail.cli.exits import Exit, Refused
from handrail.cli.quickstart_agents import scripted
from handrail.cli.quickstart_repository import TASK, TEST_FILE, clean_git_environment, create, git
from handrail.cli.target import load

AGENTS = ("planner", "coder", "fixer")


def quickstart(folder: Path | None) -> int:
    """Make a repository with a bug, let ``ship`` repair it in plain sight, say what is next.

    Raises:
        Refused: the folder is not empty, or git is missing.
    """
    if shutil.which("git") is None:
        raise Refused("quickstart", "needs git", "Install git, then try again.")
    example = find_example("ship.py")
    home = _empty_folder(folder)
    with clean_git_environment(), chdir(home):
        create(home, example)
        _introduce(home)
        workflow = load(str(home / example.name))
        agents = _scripted_agents(workflow)
        code = drive(lambda executor: executor.stream(workflow, TASK), Options(), agents=agents)
        if code == Exit.SUCCEEDED:
            _conclude(home)
    return code


def find_example(name: str) -> Path:
    """An example of handrail's own, in the installed package or in a source tree.

    Raises:
        Refused: neither has it.
    """
    package = Path(handrail.__file__).parent
    places = [package / "examples" / name, package.parent.parent / "examples" / name]
    for place in places:
        if place.is_file():
            return place
    looked = " or ".join(str(place) for place in places)
    raise Refused(f"the example {name}", f"is not at {looked}", "Install handrail again.")


def _empty_folder(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="handrail-quickstart-")).resolve()
    if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        hint = "Name a new folder, or none for a temporary one."
        raise Refused(str(wanted), "is not an empty folder", hint)
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted.resolve()


def _scripted_agents(workflow: Any) -> dict[str, Any]:
    """The example's own agents (prompts, output types), answering from a script."""
    module = sys.modules[workflow.definition.function.__module__]
    backend = scripted()
    return {name: attrs.evolve(getattr(module, name), backend=backend) for name in AGENTS}


# -- words -----------------------------------------------------------------------------------------


def _introduce(home: Path) -> None:
    print(f"A new git repository, whose tests fail: {home}")
    print("Three scripted agents repair it now, as the workflow in its ship.py tells them.")
    print(f"Their task: {TASK}.\n")


def _conclude(home: Path) -> None:
    print("\nThe fix, as it was committed:\n")
    _print_diff(git("show", "--format=%h %s", "HEAD"))
    print("\nWhat to type next\n")
    for typed, why in next_commands(home):
        print(f"  {typed:{_width(home)}}  {why}".rstrip())


def next_commands(home: Path) -> list[tuple[str, str]]:
    """What to type, each with what it shows; they work in this order, in one shell."""
    python, command = _python(), _command()
    return [
        (f"cd {shlex.quote(str(home))}", ""),
        (f"{python} -m unittest", f"{TEST_FILE} passes now"),
        ("git log -p", "what the agents did"),
        (f"{command} show ship.py", "the workflow: its inputs and steps"),
        (f"{command} graph ship.py --format text", "the same as a tree; without --format: Mermaid"),
        (f"{command} init my_flow", "a workflow of your own, and its test"),
        (f"{command} run my_flow.py", "run it"),
    ]


def _width(home: Path) -> int:
    return max(len(typed) for typed, _ in next_commands(home)[1:])


def _python() -> str:
    """The shortest name for this Python that a shell understands."""
    own = Path(sys.executable).parent.resolve()
    for name in ("python", "python3"):
        found = shutil.which(name)
        if found is not None and Path(found).parent.resolve() == own:
            return name
    return shlex.quote(sys.executable)


def _command() -> str:
    """How to call this very command again."""
    script = Path(sys.argv[0])
    if script.name != "handrail":
        return f"{_python()} -m handrail.cli"
    found = shutil.which("handrail")
    if found is not None and Path(found).resolve() == script.resolve():
        return "handrail"
    beside = Path(sys.executable).with_name("handrail")  # the folder is another one now
    return shlex.quote(str(beside if beside.exists() else script.resolve()))


def _print_diff(diff: str) -> None:
    from rich.console import Console
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    text = Text()
    for line in diff.rstrip("\n").splitlines():
        text.append(f"{line}\n", styles.get(line[:1], ""))
    Console().print(text, end="", soft_wrap=True)
