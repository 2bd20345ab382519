"""``handrail run``: a workflow, from a TARGET and inputs to an exit code."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

import anyio
import attrs
from rich.console import Console

from handrail import Executor
from handrail.cli.channels import data_channel, silence
from handrail.cli.exits import EXIT_OF, Exit
from handrail.cli.gates import can_ask, gate_handler
from handrail.cli.inputs import Arguments, arguments_for
from handrail.cli.interruption import Interruption
from handrail.cli.report import tell_ending, write_value
from handrail.cli.screen import Screen
from handrail.cli.target import load
from handrail.model.results import WorkflowResult
from handrail.ports.sink import Sink

Gates: TypeAlias = Literal["approve", "default", "fail", "ask"]


@attrs.frozen
class Options:
    """How a run is shown, and who answers its gates (None: whoever sits at the terminal)."""

    as_json: bool = False
    quiet: bool = False
    gates: Gates | None = None


def run(target: str, inputs: Sequence[str], inputs_file: Path | None, options: Options) -> int:
    """Run a workflow to its end; the exit code.

    Raises:
        HandrailError: the target or the inputs are wrong, and nothing was run.
    """
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(data_channel()) if options.as_json else None
        workflow = load(target)
        arguments = arguments_for(workflow.definition, inputs, inputs_file)
        return drive(workflow, arguments, options, data)


def drive(
    workflow: Any,
    arguments: Arguments,
    options: Options,
    data: TextIO | None = None,
    **parts: Any,
) -> int:
    """Run a workflow with these arguments; the exit code. ``parts`` are an executor's."""
    screen = None if options.quiet else Screen(Console(stderr=options.as_json))
    sinks: list[Sink] = [] if screen is None else [screen]
    executor = Executor(sinks=sinks, gates=_gates(options.gates, screen), **parts)
    with Interruption() as interruption:
        result = anyio.run(_streamed, executor, workflow, arguments, interruption)
        try:
            _report(result, data)
        except BrokenPipeError:  # whoever read it has gone; the exit code still says how it ended
            silence(1)
        tell_ending(result, quiet=options.quiet, interrupted=interruption.exit)
    if interruption.exit is not None and not result.success:
        return interruption.exit
    return EXIT_OF[result.status]


async def _streamed(
    executor: Executor, workflow: Any, arguments: Arguments, interruption: Interruption
) -> WorkflowResult[Any]:
    args, kwargs = arguments
    run = executor.stream(workflow, *args, **kwargs)
    try:
        async with run:
            interruption.watch(run)
            async for _ in run:
                pass
    except (KeyboardInterrupt, SystemExit):  # raised by an action: an interruption like a signal
        if run.driver is None or run.driver.result is None:
            raise
        interruption.exit = Exit.INTERRUPTED
        return run.driver.result
    return run.result


def _gates(wanted: Gates | None, screen: Screen | None) -> Any:
    if wanted == "ask" or (wanted is None and can_ask()):
        return gate_handler(screen)
    return wanted


def _report(result: WorkflowResult[Any], data: TextIO | None) -> None:
    if data is not None:
        json.dump(result.to_dict(), data, ensure_ascii=False, indent=2, allow_nan=False)
        data.write("\n")
        data.flush()
    elif result.success and result.final_output is not None:
        write_value(result.final_output)
        sys.stdout.flush()
