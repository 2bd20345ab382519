"""The commands. Each is a function of a module that is imported when its name is typed; to be
listed it needs a line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from cyclopts import App, Parameter

from handrail import __version__
from handrail.cli.exits import EXIT_CODES

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run:run", "Run a workflow."),
    "list": ("listing:list_", "List the workflows in Python files, without importing them."),
    "show": (
        "show:show",
        "Show a workflow's inputs and steps, or how a run stands, or one step of it.",
    ),
    "graph": ("check:graph", "Draw a workflow from its source, without running it."),
    "check": (
        "check:check",
        "Look for mistakes in workflows, without importing them; exit code 1 if there are any.",
    ),
    "init": ("init:init", "Write a new workflow, NAME.py, and its test, test_NAME.py."),
    "quickstart": (
        "quickstart:quickstart",
        "Watch a workflow repair a small real repository, with scripted agents.",
    ),
    "doctor": (
        "doctor:doctor",
        (
            "Look at what is here: Python, git, the journal, each backend and its login. Asks no "
            "model."
        ),
    ),
    "resume": (
        "run:resume",
        "Go on with a run that was killed, interrupted or suspended, or that failed.",
    ),
    "plan": ("plan:plan", "Show what a resume would do, step by step, without running anything."),
    "fork": ("history:fork", "Make a new run of another, which stays as it is, and drive it."),
    "diff": (
        "history:diff",
        "Show what differs between two runs, step by step. Exit code 1 if anything does.",
    ),
    "export": ("history:export", "Write a run to a file of JSON lines, masked as in the journal."),
    "import": ("history:import_", "Put an exported run into the journal, and print its id."),
    "replay": (
        "history:replay",
        "Check whether the code of a TARGET still replays a recorded run. Exit code 1 if not.",
    ),
    "report": (
        "markdown:report",
        "Write a run as a page that opens without a network, or print it as Markdown.",
    ),
    "verify": (
        "history:verify",
        "Check that the journal, or one run in it, is as it was written. Exit code 1 if not.",
    ),
    "prune": ("history:prune", "Remove runs that are over from the journal, and say what was won."),
    "runs": ("show:runs", "List the runs, the newest last."),
    "tail": (
        "show:tail",
        "Follow a run of another process until it ends; the exit code is the run's.",
    ),
    "ui": ("ui:ui", "Show all runs of the journal in a browser, live, and act on them from there."),
    "worker": (
        "worker:worker",
        (
            "Drive what is due: runs whose process is gone, or for which an answer or a time has "
            "come; and begin what the project's schedules say."
        ),
    ),
    "hub": (
        "hub:hub",
        "Serve claims, a board and chat to people and programs, until SIGTERM or Ctrl-C.",
    ),
    "cancel": (
        "run:cancel",
        "Cancel a run: it unwinds and is rolled back, by the process that drives it or else here.",
    ),
    "pause": (
        "steer:pause",
        "Let no step of a run begin any more; what is at work goes on to its end.",
    ),
    "unpause": ("steer:unpause", "Let a paused run go on."),
    "complete": (
        "steer:complete",
        "End a step with this output: one at work, that waits, has failed, or has not begun.",
    ),
    "skip": (
        "steer:skip",
        "End a step with its default, or as one that is skipped, without its failing.",
    ),
    "retry": (
        "steer:retry",
        "Stop the attempt of a step and begin it again, uncounted; a wait before it is over.",
    ),
    "guide": (
        "steer:guide",
        "Say something to the agents at work, whose sessions go on with it; or to the next agent.",
    ),
    "stop": (
        "steer:stop",
        (
            "End the drive of a run as Ctrl-C does in its process: it is suspended, and can be "
            "resumed."
        ),
    ),
    "work": (
        "work_app:work_app",
        (
            "Show the queues of a run, or change one: tasks to add or to drop, and what is more "
            "urgent."
        ),
    ),
    "answer": (
        "answer:answer",
        (
            "Answer an open gate of a run that is alive, suspended or dead; exit code 1 if it is "
            "closed."
        ),
    ),
    "signal": (
        "answer:signal",
        "Send a signal to a run that is alive, suspended or dead; a `wait_for` takes it.",
    ),
    "claims": (
        "claims:claims",
        "List what is held in this repository, by whom, and who waits for it.",
    ),
    "claim": (
        "claims:claim",
        "Claim files of this working tree: runs, and sessions with the guard, keep out of them.",
    ),
    "release": (
        "claims:release",
        "Give back what you have claimed in this repository, or what is named.",
    ),
    "lock": (
        "claims:lock",
        "Run a command while this name is held: handrail lock git -- git commit -m done.",
    ),
    "guard": (
        "guard:guard",
        (
            "Be the hook that an agent program runs before it edits: JSON on stdin, exit code 2 "
            "refuses."
        ),
    ),
    "worktrees": (
        "worktrees:worktrees",
        "List the worktrees that steps have left, or remove those that are merged.",
    ),
    "temporal": ("cluster_app:temporal", "A Temporal cluster on this machine, for a first try."),
}
"""Where each is, and the beginning of its docstring."""


def app_of(words: Sequence[str]) -> App:
    """The command for what was typed: only the command that is named in it is imported."""
    app = App(
        name="handrail",
        help=f"Agent workflows as plain Python generator functions.\n\n{EXIT_CODES}\n\n"
        "`--debug` (or `HANDRAIL_DEBUG=1`) adds tracebacks to errors.",
        version=__version__,
        version_flags=["--version"],
        default_parameter=Parameter(negative=()),
    )
    typed = next((word for word in words if word in COMMANDS), None)
    for name, (where, summary) in COMMANDS.items():
        if name != typed:
            app.command(App(name=name, help=summary))
        elif name == "run":
            app.command(imported(where), name=name, help=f"{summary}\n\n{EXIT_CODES}")
        else:
            app.command(imported(where), name=name)
    return app


def imported(where: str) -> Any:
    """The command that is at ``module:name``."""
    module, _, name = where.partition(":")
    return getattr(import_module(f"handrail.cli.{module}"), name)
