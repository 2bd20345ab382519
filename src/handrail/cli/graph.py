"""``handrail graph``: a workflow's source as a Mermaid flowchart or as a tree of text."""

from __future__ import annotations

from typing import Literal, TypeAlias

from handrail.cli.exits import Exit
from handrail.cli.target import load
from handrail.static.mermaid import to_mermaid
from handrail.static.source import source_of
from handrail.static.text import to_text

Format: TypeAlias = Literal["mermaid", "text"]


def graph(target: str, form: Format) -> int:
    """Print the graph of a workflow; the exit code.

    Raises:
        HandrailError: there is no such workflow, or its source cannot be read.
    """
    source = source_of(load(target).definition.function)
    print((to_mermaid(source) if form == "mermaid" else to_text(source)).rstrip("\n"))
    return Exit.SUCCEEDED
