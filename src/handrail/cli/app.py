"""The commands and their options; what each does is in a module that is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from handrail import __version__
from handrail.cli.app_claims import add_to as add_claim_commands
from handrail.cli.cluster_app import SERVING, Serving
from handrail.cli.cluster_app import temporal as temporal_commands
from handrail.cli.exits import EXIT_CODES
from handrail.cli.hub import HUB, HubOptions
from handrail.cli.options import (
    CHANGED,
    DRIVING,
    HAND,
    WHERE,
    Changed,
    Command,
    Dir,
    Driving,
    Hand,
    Json,
    PruneStatuses,
    Quiet,
    RunId,
    RunTarget,
    Statuses,
    Temporal,
    Where,
    Words,
)
from handrail.cli.work_app import work_app

app = App(
    name="handrail",
    help=f"Agent workflows as plain Python generator functions.\n\n{EXIT_CODES}\n\n"
    "`--debug` (or `HANDRAIL_DEBUG=1`) adds tracebacks to errors.",
    version=__version__,
    version_flags=["--version"],
    default_parameter=Parameter(negative=()),
)
add_claim_commands(app)

app.command(temporal_commands)

# -- workflows -------------------------------------------------------------------------------------


@app.command(help=f"Run a workflow.\n\n{EXIT_CODES}")
def run(
    target: str,
    /,
    *,
    input: Annotated[list[str] | None, Parameter(name="--input")] = None,  # noqa: A002
    inputs: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    run_id: str | None = None,
    new: bool = False,
    driving: Driving = DRIVING,
    where: Where = WHERE,
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
    run_id
        The run's id. A run of this id that is not finished goes on; of one that has succeeded the
        recorded result is printed. Inputs must be the same, or left out.
    new
        Start a new run in any case; refused if there is one of this id.
    """
    from handrail.cli.run import Wanted
    from handrail.cli.run import run as run_target

    wanted = Wanted(target, input or [], inputs, run_id, new)
    return run_target(wanted, driving.options(), driving.place(where))


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
    from handrail.cli.target import list_workflows

    return list_workflows(path, as_json=as_json)


@app.command
def show(
    what: str,
    path: str = "",
    /,
    *,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Show a workflow's inputs and steps, or how a run stands, or one step of it.

    Parameters
    ----------
    what
        `file.py:name` or `module:name`; or a run's id, or the beginning of it.
    path
        The path of a step of the run, which is shown whole: attempts, tracebacks, output.
    as_json
        Print it as JSON: of a workflow its `describe()`.
    """
    from handrail.cli.show import show as show_either

    return show_either(what, where.place(), step=path, as_json=as_json)


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
    from handrail.cli.check import graph as graph_target

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


@app.command
def doctor(
    *,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Look at what is here: Python, git, the journal, each backend and its login. Asks no model.

    The exit code is 1 if something is missing without which nothing runs.

    Parameters
    ----------
    as_json
        Print it as JSON.
    """
    from handrail.cli.doctor import doctor as look

    return look(where.place(), as_json=as_json)


# -- runs ------------------------------------------------------------------------------------------


@app.command
def resume(
    run: RunId | None = None,
    /,
    *,
    latest: bool = False,
    all_runs: Annotated[bool, Parameter(name="--all", negative="")] = False,
    changed: Changed = CHANGED,
    target: RunTarget = None,
    driving: Driving = DRIVING,
    where: Where = WHERE,
) -> int:
    """Go on with a run that was killed, interrupted or suspended, or that failed.

    Parameters
    ----------
    latest
        The run that was started last.
    all_runs
        Every run that is suspended, or dead, one after the other. Exit code 1 if one failed, 3 if
        one is suspended.
    """
    from handrail.cli.run import resume as resume_run
    from handrail.cli.run import resume_all

    options, place = driving.options(), driving.place(where)
    if all_runs:
        return resume_all(run, options, place, latest=latest, choices=changed.choices())
    return resume_run(run, options, place, latest=latest, choices=changed.choices(), target=target)


@app.command
def plan(
    run: RunId,
    /,
    *,
    changed: Changed = CHANGED,
    target: RunTarget = None,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Show what a resume would do, step by step, without running anything.

    Parameters
    ----------
    as_json
        Print the plan as JSON.
    """
    from handrail.cli.plan import plan as plan_run

    return plan_run(
        run,
        where.place(),
        choices=changed.choices(),
        as_json=as_json,
        target=target,
    )


@app.command
def fork(
    run: RunId,
    /,
    *,
    at: str | None = None,
    set_output: Annotated[list[str] | None, Parameter(name="--set")] = None,
    inputs: Annotated[list[str] | None, Parameter(name="--input")] = None,
    rerun: Words = None,
    run_id: str | None = None,
    no_run: bool = False,
    target: RunTarget = None,
    driving: Driving = DRIVING,
    where: Where = WHERE,
) -> int:
    """Make a new run of another, which stays as it is, and drive it.

    Parameters
    ----------
    at
        Keep what had ended when this step began.
    set_output
        PATH=VALUE: the step at PATH has this output, and what began after it had ended runs again;
        repeatable.
    inputs
        NAME=VALUE: another input; what differs by it runs again. Repeatable.
    rerun
        The path of a step that runs again; repeatable.
    run_id
        The id of the new run.
    no_run
        Only make it, and print its id.
    """
    from handrail.cli.history import ForkWanted
    from handrail.cli.history import fork as fork_run

    wanted = ForkWanted(at, set_output or (), inputs or (), rerun or (), run_id)
    place = driving.place(where)
    return fork_run(run, wanted, driving.options(), place, target=target, drives=not no_run)


@app.command
def diff(
    a: RunId,
    b: RunId,
    /,
    *,
    whole: Annotated[bool, Parameter(name="--all")] = False,
    as_json: Json = False,
    folder: Dir = None,
    temporal: Temporal = None,
) -> int:
    """Show what differs between two runs, step by step. Exit code 1 if anything does.

    Parameters
    ----------
    whole
        Also the steps that are the same.
    as_json
        Print the comparison as JSON.
    """
    from handrail.cli.history import diff as diff_runs
    from handrail.cli.target import place_of

    return diff_runs((a, b), place_of(folder, None, temporal), whole=whole, as_json=as_json)


@app.command
def export(
    run: RunId,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    folder: Dir = None,
    temporal: Temporal = None,
) -> int:
    """Write a run to a file of JSON lines, masked as in the journal.

    Parameters
    ----------
    output
        The file; by default RUN.jsonl here.
    """
    from handrail.cli.history import export as export_run
    from handrail.cli.target import place_of

    return export_run(run, output, place_of(folder, None, temporal))


@app.command(name="import")
def import_(
    file: Path, /, *, run_id: str | None = None, folder: Dir = None, temporal: Temporal = None
) -> int:
    """Put an exported run into the journal, and print its id.

    Parameters
    ----------
    file
        What `handrail export` has written.
    run_id
        Another id for it.
    """
    from handrail.cli.history import import_run
    from handrail.cli.target import place_of

    return import_run(file, run_id, place_of(folder, None, temporal))


@app.command
def replay(file: Path, target: str, /, *, run_id: str | None = None) -> int:
    """Check whether the code of a TARGET still replays a recorded run. Exit code 1 if not.

    Nothing is performed. What is told is the first step that differs, and its line.

    Parameters
    ----------
    file
        An exported run, or the file of a journal.
    target
        FILE.py, FILE.py:NAME or MODULE:NAME.
    run_id
        Of a journal with several runs, which one.
    """
    from handrail.cli.history import replay as replay_run

    return replay_run(file, target, run_id)


@app.command
def report(
    run: RunId,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    markdown: Annotated[bool, Parameter(negative="")] = False,
    github: Annotated[bool, Parameter(negative="")] = False,
    folder: Dir = None,
    temporal: Temporal = None,
) -> int:
    """Write a run as a page that opens without a network, or print it as Markdown.

    Parameters
    ----------
    output
        The file: a page, or Markdown if its name ends in .md. Without one Markdown is printed.
    markdown
        As Markdown, whatever the name of the file.
    github
        Add it to the summary of the GitHub job that this runs in, $GITHUB_STEP_SUMMARY.
    """
    from handrail.cli.markdown import page, summary_of_job
    from handrail.cli.markdown import report as report_run
    from handrail.cli.target import place_of

    where = summary_of_job() if github else None
    if output is None or markdown or output.suffix.lower() in {".md", ".markdown"}:
        return report_run(run, place_of(folder, None, temporal), output=output, github=where)
    if where is not None:
        report_run(run, place_of(folder, None, temporal), output=None, github=where)
    return page(run, place_of(folder, None, temporal), output)


@app.command
def verify(run: RunId | None = None, /, *, as_json: Json = False, folder: Dir = None) -> int:
    """Check that the journal, or one run in it, is as it was written. Exit code 1 if not.

    Parameters
    ----------
    as_json
        Print the faults as JSON.
    """
    from handrail.cli.history import verify as verify_journal
    from handrail.cli.target import place_of

    return verify_journal(run, place_of(folder), as_json=as_json)


@app.command
def prune(
    *,
    older_than: str | None = None,
    keep_last: int | None = None,
    status: Annotated[list[PruneStatuses] | None, Parameter()] = None,
    artifacts: bool = False,
    dry_run: bool = False,
    folder: Dir = None,
) -> int:
    """Remove runs that are over from the journal, and say what was won.

    Parameters
    ----------
    older_than
        Those whose last event is so old: 30d, 12h, 2w.
    keep_last
        All but so many of the newest.
    status
        Only runs that ended so; `suspended` and `dead` ones only if named. Repeatable.
    artifacts
        Their files for people, too.
    dry_run
        Only print which.
    """
    from handrail.cli.history import PruneWanted
    from handrail.cli.history import prune as prune_runs
    from handrail.cli.target import place_of

    wanted = PruneWanted(older_than, keep_last, status or (), artifacts, dry_run)
    return prune_runs(wanted, place_of(folder))


@app.command
def runs(
    *,
    status: Annotated[list[Statuses] | None, Parameter()] = None,
    workflow: Words = None,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """List the runs, the newest last.

    Parameters
    ----------
    status
        Only runs that stand so; `dead`: without an end, and nobody drives them. Repeatable.
    workflow
        Only runs of the workflow of this name; repeatable.
    as_json
        Print a JSON list.
    """
    from handrail.cli.show import runs as list_runs

    statuses, workflows = status or [], workflow or []
    return list_runs(
        where.place(),
        statuses=statuses,
        workflows=workflows,
        as_json=as_json,
    )


@app.command
def tail(
    run: RunId,
    /,
    *,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Follow a run of another process until it ends; the exit code is the run's.

    Parameters
    ----------
    as_json
        Print each event as one line of JSON.
    """
    from handrail.cli.show import tail as tail_run

    return tail_run(run, where.place(), as_json=as_json)


@app.command
def ui(
    *,
    port: int = 8484,
    open_it: Annotated[bool, Parameter(name="--open", negative="")] = False,
    read_only: Annotated[bool, Parameter(negative="")] = False,
    where: Where = WHERE,
) -> int:
    """Show all runs of the journal in a browser, live, and act on them from there.

    The page is served to this machine alone, and the address that is printed has its token.

    Parameters
    ----------
    port
        Where; 0 takes a free one.
    open_it
        Open it in a browser.
    read_only
        Runs are looked at only.
    """
    from handrail.cli.ui import ui as show_page

    return show_page(where.place(), port=port, opens=open_it, read_only=read_only)


@app.command
def worker(
    *modules: Annotated[str, Parameter(name="MODULE")],
    max_runs: int = 10,
    notify: Command = None,
    print_systemd: Annotated[bool, Parameter(negative="")] = False,
    where: Where = WHERE,
    serving: Serving = SERVING,
) -> int:
    """Drive what is due: runs whose process is gone, or for which an answer or a time has come; and
    begin what the project's schedules say.

    With --temporal, serve a cluster: drive the runs of the workflows in MODULE, and perform steps.

    Parameters
    ----------
    modules
        With --temporal: FILE.py or MODULE, whose workflows are served; repeatable.
    max_runs
        At most so many at once, each in a process of its own.
    notify
        Run this command when a run needs a person or has ended, once for each: see run --notify.
    print_systemd
        Only print a unit for systemd that runs this worker.
    """
    from handrail.cli.worker import Wanted
    from handrail.cli.worker import worker as drive_due

    place = where.place()
    code = serving.serve(place, modules)
    wanted = Wanted(max_runs, notify)
    return drive_due(place, wanted, prints=print_systemd) if code is None else code


@app.command
def hub(*, options: HubOptions = HUB) -> int:
    """Serve claims, a board and chat to people and programs, until SIGTERM or Ctrl-C.

    Programs of synapse-channel 0.32 are clients of it, its command `synapse` among them.
    """
    from handrail.cli.hub import hub as serve_hub

    return serve_hub(options)


@app.command
def cancel(
    run: RunId,
    /,
    *,
    reason: str = "cancelled by hand",
    timeout: float = 60,
    target: RunTarget = None,
    as_json: Json = False,
    quiet: Quiet = False,
    where: Where = WHERE,
) -> int:
    """Cancel a run: it unwinds and is rolled back, by the process that drives it or else here.

    Parameters
    ----------
    reason
        Why; it is recorded.
    timeout
        How many seconds to wait for the end of a run of another process.
    as_json
        Print how the run stands as JSON.
    """
    from handrail.cli.driving import Options
    from handrail.cli.run import cancel as cancel_run

    options = Options(as_json=as_json, quiet=quiet)
    place = where.place()
    return cancel_run(run, reason, place, options, timeout_s=timeout, target=target)


@app.command
def pause(run: RunId, /, *, hand: Hand = HAND) -> int:
    """Let no step of a run begin any more; what is at work goes on to its end."""
    from handrail.cli.steer import steer

    return steer(run, "pause", hand.where.place(), by=hand.by, as_json=hand.as_json)


@app.command
def unpause(run: RunId, /, *, hand: Hand = HAND) -> int:
    """Let a paused run go on."""
    from handrail.cli.steer import steer

    return steer(run, "unpause", hand.where.place(), by=hand.by, as_json=hand.as_json)


@app.command
def complete(
    run: RunId,
    path: str,
    output: Annotated[str, Parameter(name="OUTPUT", allow_leading_hyphen=True)],
    /,
    *,
    target: RunTarget = None,
    hand: Hand = HAND,
) -> int:
    """End a step with this output: one at work, that waits, has failed, or has not begun.

    Parameters
    ----------
    path
        The path of the step.
    output
        What the step's type takes: text, or JSON.
    """
    from handrail.cli.steer import complete as complete_step

    return complete_step(
        run, path, output, hand.where.place(), target, by=hand.by, as_json=hand.as_json
    )


@app.command
def skip(run: RunId, path: str, /, *, target: RunTarget = None, hand: Hand = HAND) -> int:
    """End a step with its default, or as one that is skipped, without its failing."""
    from handrail.cli.steer import skip as skip_step

    return skip_step(run, path, hand.where.place(), target, by=hand.by, as_json=hand.as_json)


@app.command
def retry(run: RunId, path: str, /, *, target: RunTarget = None, hand: Hand = HAND) -> int:
    """Stop the attempt of a step and begin it again, uncounted; a wait before it is over."""
    from handrail.cli.steer import retry as retry_step

    return retry_step(run, path, hand.where.place(), target, by=hand.by, as_json=hand.as_json)


@app.command
def guide(
    run: RunId,
    text: Annotated[str, Parameter(name="TEXT", allow_leading_hyphen=True)],
    /,
    *,
    path: str | None = None,
    target: RunTarget = None,
    hand: Hand = HAND,
) -> int:
    """Say something to the agents at work, whose sessions go on with it; or to the next agent.

    Parameters
    ----------
    text
        What is said.
    path
        Only to the agent of this step, or to those of the steps that it holds.
    """
    from handrail.cli.steer import guide as guide_agents

    return guide_agents(
        run, text, path, hand.where.place(), target, by=hand.by, as_json=hand.as_json
    )


@app.command
def stop(
    run: RunId | None = None,
    /,
    *,
    every: Annotated[bool, Parameter(name="--all")] = False,
    hand: Hand = HAND,
) -> int:
    """End the drive of a run as Ctrl-C does in its process: it is suspended, and can be resumed.

    Parameters
    ----------
    every
        All runs of the journal that a process drives now.
    """
    from handrail.cli.steer import stop as stop_runs

    return stop_runs(run, hand.where.place(), every=every, by=hand.by, as_json=hand.as_json)


app.command(work_app)


@app.command
def answer(
    run: RunId,
    gate: str,
    text: Annotated[str, Parameter(name="ANSWER", allow_leading_hyphen=True)],
    /,
    *,
    by: str | None = None,
    target: RunTarget = None,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Answer an open gate of a run that is alive, suspended or dead; exit code 1 if it is closed.

    Parameters
    ----------
    gate
        The path of the step that asks.
    text
        One of the choices, or what the gate's type takes.
    by
        Who answers; by default user@host.
    as_json
        Print what counts as JSON.
    """
    from handrail.cli.answer import answer as answer_gate

    return answer_gate(run, gate, text, where.place(), by=by, as_json=as_json, target=target)


@app.command
def signal(
    run: RunId,
    name: str,
    payload: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    by: str | None = None,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Send a signal to a run that is alive, suspended or dead; a `wait_for` takes it.

    Parameters
    ----------
    name
        The signal's name.
    payload
        JSON, or else text.
    by
        Who sends it; by default user@host.
    as_json
        Print what was sent as JSON.
    """
    from handrail.cli.answer import signal as send_signal

    return send_signal(run, name, payload, where.place(), by=by, as_json=as_json)
