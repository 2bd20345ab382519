"""``handrail quickstart``: the shipped example at work on a small real repository."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import attrs

import handrail
from handrail.agents.fake import FakeBackend
from handrail.cli.driving import Options, drive
from handrail.cli.exits import Exit, Refused
from handrail.cli.target import load
from handrail.sandbox.bubblewrap import why_unavailable

TASK = "page_count forgets the last page when it is not full"
CODE_FILE = "pages.py"
TEST_FILE = "test_pages.py"

SIGNATURE = "def page_count(items: int, per_page: int) -> int:"
BUGGY = "return items // per_page"
CODE = f'''\
"""How a list is cut into pages."""


{SIGNATURE}
    """How many pages it takes to show all items."""
    {BUGGY}
'''

TESTS = """\
import unittest

from pages import page_count


class PageCount(unittest.TestCase):
    def test_full_pages(self) -> None:
        self.assertEqual(3, page_count(9, 3))

    def test_a_last_page_that_is_not_full(self) -> None:
        self.assertEqual(4, page_count(10, 3))

    def test_no_items_need_no_page(self) -> None:
        self.assertEqual(0, page_count(0, 3))


if __name__ == "__main__":
    unittest.main()
"""

_SETTINGS = {
    "user.name": "handrail quickstart",
    "user.email": "quickstart@handrail.invalid",
    # A user's own configuration may sign commits, which asks for a key, or run hooks.
    "commit.gpgSign": "false",
    "core.hooksPath": ".git/no-hooks",
    "core.autocrlf": "false",
}


def create(home: Path, example: Path) -> None:
    """Fill an empty folder: code, its failing test, the workflow, and a first commit.

    Raises:
        Refused: a git command failed; the text is git's.
    """
    (home / CODE_FILE).write_text(CODE, "utf-8")
    (home / TEST_FILE).write_text(TESTS, "utf-8")
    (home / ".gitignore").write_text("__pycache__/\n", "utf-8")
    shutil.copyfile(example, home / example.name)
    git("-c", "init.defaultBranch=main", "init", "--quiet", "--template=")
    for name, value in _SETTINGS.items():
        git("config", name, value)
    git("add", "--all")
    git("commit", "--quiet", "-m", "Count pages")


def git(*words: str) -> str:
    """Run git in the current folder; what it printed.

    Raises:
        Refused: git failed.
    """
    done = subprocess.run(  # noqa: S603  # the words are our own
        ["git", "--no-pager", *words],  # noqa: S607  # the git on PATH is the user's own
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(f"git {words[0]}", (done.stderr or done.stdout).strip() or "failed")
    return done.stdout


@contextmanager
def clean_git_environment() -> Generator[None]:
    """Unset the variables by which a git hook, or a shell, points git at another repository."""
    misleading = [
        name for name in os.environ if name in _MISLEADING or name.startswith("GIT_CONFIG")
    ]
    kept = {name: os.environ.pop(name) for name in misleading}
    before = os.environ.get("GIT_TERMINAL_PROMPT")
    os.environ["GIT_TERMINAL_PROMPT"] = "0"
    try:
        yield
    finally:
        os.environ.update(kept)
        if before is None:
            del os.environ["GIT_TERMINAL_PROMPT"]
        else:
            os.environ["GIT_TERMINAL_PROMPT"] = before


_MISLEADING = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)


THINKING_S = 0.7
"""How long each answer takes, so that the tree can be read while it grows."""

# Of different lengths: Python compares size and mtime, in seconds, to find stale compiled code.
TOO_SIMPLE = "return items // per_page + 1"
RIGHT = "return (items + per_page - 1) // per_page"


def scripted() -> FakeBackend:
    """A backend that answers for each agent of ``examples/ship.py``, and edits the code for two."""
    replies: dict[str, list[Any]] = {"planner": [plan], "coder": [implement], "fixer": [fix]}
    return FakeBackend(replies, delay=THINKING_S, name="script")


def plan() -> str:
    """A plan as JSON, amid the prose that models write around their answers."""
    return """\
The division rounds down, so a last page that is not full is lost. My plan:

```json
{
  "goal": "Make page_count in pages.py count a last page that is not full.",
  "steps": ["Round the division up", "Leave test_pages.py as it is"],
  "commit_message": "Count the last page when it is not full"
}
```
"""


def implement() -> dict[str, Any]:
    """A first edit that passes one test and breaks two."""
    _replace(BUGGY, TOO_SIMPLE)
    return {"files": [CODE_FILE], "why": "A page that is not full is one more page."}


def fix() -> dict[str, Any]:
    """The edit that passes them all."""
    _replace(TOO_SIMPLE, RIGHT)
    return {"files": [CODE_FILE], "why": "One more only where something is left: round up."}


def _replace(old: str, new: str) -> None:
    file = Path(CODE_FILE)
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")


AGENTS = ("planner", "coder", "fixer")


def quickstart(folder: Path | None = None, /) -> int:
    """Watch a workflow repair a small real repository, with scripted agents.

    Parameters
    ----------
    folder
        A new or empty folder for the repository; by default a temporary one.
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


def about_sandbox(what: str) -> str:
    """A line that says whether this machine puts a sandbox around what a workflow starts."""
    refused = why_unavailable()
    if refused is None:
        return f"{what} in a sandbox, as this machine has bubblewrap."
    return f"{what} without a sandbox: {refused.why} (`handrail doctor` says more)."


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


# -- output ----------------------------------------------------------------------------------------


def _introduce(home: Path) -> None:
    print(f"A new git repository, whose tests fail: {home}")
    print("Three scripted agents repair it now, as the workflow in its ship.py tells them.")
    print(f"Their task: {TASK}.")
    print(f"{about_sandbox('Its checks run')}\n")


def _conclude(home: Path) -> None:
    print("\nThe fix, as it was committed:\n")
    _print_diff(git("show", "--format=%h %s", "HEAD"))
    print("\nWhat to type next\n")
    for typed, why in next_commands(home):
        print(f"  {typed:{_width(home)}}  {why}".rstrip())


def next_commands(home: Path) -> list[tuple[str, str]]:
    """Commands to type, each with what it shows; they work in this order, in one shell."""
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
    beside = Path(sys.executable).with_name("handrail")  # the current folder has changed
    return shlex.quote(str(beside if beside.exists() else script.resolve()))


def _print_diff(diff: str) -> None:
    from rich.console import Console
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    text = Text()
    for line in diff.rstrip("\n").splitlines():
        text.append(f"{line}\n", styles.get(line[:1], ""))
    Console().print(text, end="", soft_wrap=True)
