"""``handrail show``: a workflow, or a run."""

from __future__ import annotations

from handrail.cli.channels import json_channel
from handrail.cli.journal import Place, chosen, exactly, matching, whole
from handrail.cli.target import is_file, is_module
from handrail.ports.journal import Journal, RunInfo


def show(what: str, place: Place, *, as_json: bool) -> int:
    """Print it; the exit code.

    It is a run if it is the id of one; or, with no colon and no file of this name, the beginning of
    an id; then, if no id begins so, a module.

    Raises:
        HandrailError: there is neither such a run nor such a workflow.
    """
    if place.is_there():
        with json_channel(wanted=as_json) as data:
            journal = place.find()
            run = _run(journal, what)
            if run is not None:
                from handrail.cli.show_run import show_run

                return show_run(run, journal, place, data)
    from handrail.cli.show import show as show_workflow

    return show_workflow(what, as_json=as_json)


def _run(journal: Journal, what: str) -> RunInfo | None:
    runs = journal.runs()
    run = exactly(runs, what)
    if run is not None:
        return whole(journal, run)
    if ":" in what or is_file(what):
        return None
    if not matching(runs, what) and is_module(what):
        return None
    return whole(journal, chosen(runs, what))
