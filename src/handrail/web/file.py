"""A run as one HTML file, for ``handrail report``."""

from __future__ import annotations

import time

from handrail.cli.exits import Refused
from handrail.cli.journal import Place
from handrail.cli.masking import mask
from handrail.cli.target import source_of_run
from handrail.ports.journal import RunInfo
from handrail.record.state import RecordedRun
from handrail.typed.jsonsafe import Json
from handrail.web.graph_json import graph_of
from handrail.web.report import html_of
from handrail.web.texts import Texts, texts_of


def html_page(recorded: RecordedRun, place: Place) -> str:
    """A run as one HTML file."""
    info = recorded.info

    def texts(path: str) -> Texts:
        return texts_of(place.artifacts, info.workflow_name, info.run_id, path)

    graph = _graph(info, place)
    return html_of(recorded, made_at=time.time(), graph=graph, texts=texts, mask=mask())


def _graph(info: RunInfo, place: Place) -> Json:
    """The graph of a run's workflow; None if its code is not there any more."""
    try:
        source = source_of_run(info, place)
    except Refused:
        return None
    return None if source is None else graph_of(source)
