"""What the command prints of a run after its end, besides the console sink's closing line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast

from handrail.cli.channels import tell
from handrail.cli.exits import Exit, debugging
from handrail.cli.journal import Place
from handrail.cli.masking import mask, mask_text, mask_value
from handrail.codec.unresolved import Unresolved
from handrail.errors import ReplayMismatch, StepChange
from handrail.model.results import AgentResult, OpenGate, StepResult, WorkflowResult, answer_words
from handrail.model.work import Work
from handrail.record.dropped import stuck_step
from handrail.record.view import FailureCause
from handrail.secrets.spellings import SHORTEST
from handrail.secrets.values import placeholder
from handrail.sinks.console_words import at_line, wait_text
from handrail.sinks.event_words import question_of


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with aligned columns."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    padded = ((text + " " * (width - width_of(text)) for text, width in line) for line in lines)
    return ["  ".join(line).rstrip() for line in padded]


def width_of(text: str) -> int:
    """How wide the text is on a terminal, where some letters take the place of two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def change_lines(change: StepChange) -> tuple[str, str]:
    """What the step was and what it is now, as two lines."""
    return f"was  {one_line(change.was)}", f"now  {one_line(change.now)}"


def resume_commands(
    run_id: str,
    changes: Sequence[StepChange],
    place: Place,
    chosen: Sequence[str] = (),
    *,
    fork: bool = False,
) -> list[str]:
    """Two commands to type: one keeps the records of the changed steps, one runs them again.

    ``chosen``: words typed before, which both repeat. A ``fork`` runs them again by itself.
    """
    lines: list[str] = []
    for option, why in (("--reuse", "keep the record"), ("--rerun", "run again")):
        by_itself = fork and option == "--rerun"
        words = [word for change in changes for word in (option, change.path) if not by_itself]
        lines.append(f"{f'{why}:':24}{place.command('resume', run_id, *chosen, *words)}")
    return lines


MOST_LINES = 40
"""Lines, or items, of a returned value that is cut on a terminal."""
CLOSING_LINE_CHARS = 200
"""Characters of the reason of a suspension that the console's closing line shows."""


def write_value(value: Any) -> None:
    """Print what a workflow returned: text as it is, other values formatted for people.

    Of results of agents, child workflows and work it prints the values inside. On a terminal it
    cuts those if they are long: they would push the lines above off the screen.
    """
    said = readable(value)
    cut = said is not value and sys.stdout.isatty()
    if isinstance(said, str):
        text = mask_text(said) if sys.stdout.isatty() else mask().text(said)
        print("\n".join(first_lines(text, MOST_LINES)) if cut else text)
        return
    from rich.console import Console
    from rich.highlighter import ReprHighlighter
    from rich.pretty import pretty_repr

    console = Console()
    most = MOST_LINES if cut else None
    text = pretty_repr(mask_value(said), max_width=console.width, max_length=most)
    console.print(ReprHighlighter()(mask_text(text)), soft_wrap=True)


def value_text(value: Any) -> str:
    """A value for people, without secrets: text as it is, other values formatted."""
    from rich.pretty import pretty_repr

    held = readable(value)
    return mask_text(held if isinstance(held, str) else pretty_repr(mask_value(held)))


def readable(value: Any) -> Any:
    """The value inside a result of an agent, step, work or child workflow; others as they are.

    Results in lists, tuples and dicts are replaced, too.
    """
    match cast("object", value):
        case AgentResult():
            return readable(value.output)
        case WorkflowResult(status="succeeded"):
            return readable(value.value if value.value is not None else value.final_output)
        case WorkflowResult():
            why = f": {value.error}" if value.error else ""
            return f"{value.workflow_name} {value.status}{why}"
        case Work():
            return _by_id(value)
        case StepResult(success=True):
            return readable(value.output)
        case StepResult():
            return f"{value.path} {value.status}: {value.error}"
        case _:
            return _readable_inside(value)


def _by_id(work: Work[Any]) -> dict[str, Any]:
    """The outcome of each task, by its id."""
    found = {
        "done": {one.id: readable(one.value) for one in work.done},
        "failed": {one.id: one.error for one in work.failed},
        "left": [one.id for one in work.left],
        "refused": {one.id: one.why for one in work.refused},
        "why_stopped": work.why_stopped,
    }
    return {name: what for name, what in found.items() if what}


def _readable_inside(value: Any) -> Any:
    inside: Any = value
    if type(value) in {list, tuple}:
        held = [readable(one) for one in inside]
        now = tuple(held) if isinstance(value, tuple) else held
        return now if _differs(held, inside) else inside
    if type(value) is dict:
        found = {key: readable(one) for key, one in inside.items()}
        return found if _differs(found.values(), inside.values()) else inside
    return inside


def _differs(now: Iterable[Any], before: Iterable[Any]) -> bool:
    return any(one is not was for one, was in zip(now, before, strict=True))


def indented_lines(text: str, *, most: int = 20) -> list[str]:
    """At most ``most`` lines of a text, those after the first indented."""
    first, *others = first_lines(text.rstrip(), most) or [""]
    return [first, *(f"    {line}" for line in others)]


def first_lines(text: str | Sequence[str], most: int) -> list[str]:
    """The lines of a text; of more than ``most`` the first, and how many more there are."""
    lines = text.splitlines() if isinstance(text, str) else list(text)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"... {len(lines) - most + 1} more lines (--json has all)"]


def tell_ending(
    result: WorkflowResult[Any],
    *,
    quiet: bool,
    interrupted: Exit | None,
    place: Place | None,
    more: Sequence[str] = (),
) -> None:
    """Print on stderr what the user must know or do now; mostly nothing.

    ``place`` is that of the journal, if the run can be resumed from one. ``more``: words that raise
    the bound that a person typed and the run has reached.
    """
    again = "" if place is None else place.command("resume", result.run_id)
    if interrupted is not None:
        by = f" by {result.error}" if str(result.error).startswith("exit ") else ""  # by an action
        said = "too late to interrupt" if result.success else f"interrupted{by}"
        tell(f"{said}: {_progress_text(result)}")
    elif (
        result.status == "suspended"
        and result.error
        and (quiet or not _fits_closing_line(result.error))
    ):
        tell(f"it needs a person: {one_line(result.error)}")
    elif quiet and result.status in {"failed", "cancelled"}:
        error = mask_text(f"{result.workflow_name} {result.status}: {result.error}")
        first, *others = indented_lines(error)
        where = mask_text(at_line(FailureCause.of("", result.workflow_name, result)))
        tell("\n".join([first + where, *others]))
    if place is not None and result.status == "suspended":
        _tell_what_is_waited_for(result, place, listed=not quiet)
        if place.elsewhere is not None and not result.error:
            watch = place.command("tail", result.run_id)
            tell(f"then it continues by itself; to watch it: {watch}")
        else:
            tell(f"nothing was rolled back; to continue: {again}")
    elif result.status == "suspended" and not result.error:
        tell(one_line(_suspension_text(result, listed=not quiet)))
    elif place is not None and result.status == "failed" and more:
        tell(f"to continue with a larger bound: {place.command('resume', result.run_id, *more)}")
    elif place is not None and result.status == "failed" and not quiet:
        stuck = stuck_step(result.error_type, result.failed_step)
        words = () if stuck is None else ("--rerun", stuck)
        again = place.command("resume", result.run_id, *words)
        tell(f"to continue from the last recorded step: {again}")
    if result.success and result.orphaned:
        tell(one_line(orphaned_text(result.orphaned)))
    if debugging():
        for text in _tracebacks(result):
            print(mask_text(text), file=sys.stderr)


def orphaned_text(orphaned: Sequence[str]) -> str:
    """The line that names orphaned steps: recorded, but no longer in the code."""
    return f"recorded steps that are no longer in the code: {_list_paths(orphaned)}"


def tell_mismatch(error: ReplayMismatch, place: Place | None) -> None:
    """Print which steps changed since they were recorded, and the commands that resume the run."""
    if place is None:
        tell(one_line(str(error)))
        return
    ran = "steps that ran before this was found are recorded"
    said = ran if error.late else "nothing was run"
    tell(f"run {error.run_id}: the code no longer matches the record; {said}")
    for change in error.changes:
        was, now = change_lines(change)
        print(mask_text(f"  step {change.path!r}\n    {was}\n    {now}"), file=sys.stderr)
    for command in resume_commands(error.run_id, error.changes, place):
        print(command, file=sys.stderr)
    if error.hint:
        print(mask_text(error.hint.strip()), file=sys.stderr)


def _fits_closing_line(error: str) -> bool:
    """True if the console's closing line has the whole error."""
    return len(" ".join(error.split())) <= CLOSING_LINE_CHARS


def tell_missing(run_id: str, variables: Sequence[str]) -> None:
    """Print which secrets of a record are not set here, and what to do."""
    names, are = ", ".join(variables), "are" if len(variables) > 1 else "is"
    instead = ", ".join(map(placeholder, variables))
    tell(
        f"{names} {are} not set here (or shorter than {SHORTEST} characters), so steps and agents "
        f"of run {run_id} get the text {instead} in place of the recorded value. If they need the "
        f"value: stop this with Ctrl-C, set {names}, and resume again"
    )


def one_line(text: str) -> str:
    """The text on one line, without secrets; masked first, as a secret may have line breaks."""
    return " ".join(mask_text(text).split())


def _progress_text(result: WorkflowResult[Any]) -> str:
    ended: dict[str, list[str]] = {}
    for step in result.step_results:
        ended.setdefault(step.status, []).append(step.path)
    parts = [f"{len(paths)} {status} ({_list_paths(paths)})" for status, paths in ended.items()]
    undone = len(result.rollback_errors)
    if undone:
        parts.append(f"{undone} rollbacks failed")
    return ", ".join(parts) or "no step has ended"


def _list_paths(paths: Sequence[str], most: int = 8) -> str:
    listed = ", ".join(paths[:most])
    return f"{listed}, ..." if len(paths) > most else listed


def _tell_what_is_waited_for(result: WorkflowResult[Any], place: Place, *, listed: bool) -> None:
    """Print how to unpause the run, and how to answer each gate and signal; ``listed``: the
    console has shown the questions.
    """
    for wait in result.waits_for:
        if wait.kind == "unpause":
            tell(f"it waits for {wait_text(wait)}: {place.command('unpause', result.run_id)}")
    for gate in result.waiting:
        question = "" if listed else f" ({one_line(_question_text(gate))})"
        tell(f"it waits for an answer{question}: {answer_command(result.run_id, gate, place)}")
    for name in result.waiting_signals:
        tell(f"it waits for a signal: {signal_command(result.run_id, name, place)}")


def _suspension_text(result: WorkflowResult[Any], *, listed: bool) -> str:
    if not result.waiting:
        return "suspended: it waits for a signal, but is in no journal; nothing was rolled back"
    gates = "" if listed else f" {'; '.join(map(_question_text, result.waiting))}"
    return (
        f"suspended: a question has no answer{gates}. Run it on a terminal, or with --gates "
        f"approve, default, fail or ask (reads answers from stdin); nothing was rolled back"
    )


def _question_text(gate: OpenGate) -> str:
    return f"{gate.path!r} ({question_of(gate)})"


def _tracebacks(result: WorkflowResult[Any]) -> list[str]:
    found = [step.traceback for step in result.step_results] + [result.traceback]
    return [text.rstrip() for text in dict.fromkeys(found) if text]


def answer_command(run_id: str, gate: OpenGate, place: Place) -> str:
    """The command that answers a gate with its first choice, and the other choices after it."""
    first, *others = _answer_words(gate)
    command = place.command("answer", run_id, gate.path, first)
    return f"{command}   (or {', '.join(map(shlex.quote, others))})" if others else command


def signal_command(run_id: str, name: str, place: Place) -> str:
    """The command that sends a signal."""
    return place.command("signal", run_id, name)


def _answer_words(gate: OpenGate) -> list[str]:
    if gate.choices and not any(isinstance(one, Unresolved) for one in gate.choices):
        return answer_words(gate.choices, gate.values)
    return ["yes", "no"] if gate.type is bool else ["ANSWER"]
