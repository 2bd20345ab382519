"""``handrail check``: the lint, for people and for CI."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal, TypeAlias

from handrail.cli.check_agents import agent_mistakes
from handrail.cli.exits import Exit
from handrail.cli.target import load, python_files, read_source
from handrail.project import configured_stages
from handrail.static.lint import Finding, check_module
from handrail.static.lint_reads import stage_mistakes
from handrail.static.lint_steps import Mistake
from handrail.static.mermaid import to_mermaid
from handrail.static.source import source_of
from handrail.static.symbols import Symbols
from handrail.static.text import to_text


def check(paths: Sequence[Path], *, as_json: bool) -> int:
    """Print what is wrong with the workflows below these paths; 1 if anything is."""
    files = [file for path in paths for file in python_files(path)]
    found = [finding for file in files for finding in findings_in(file)]
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], ensure_ascii=False, indent=2))
    else:
        for finding in found:
            print(finding)
        print(_summary(len(found), len(files)))
    return Exit.FAILED if found else Exit.SUCCEEDED


def findings_in(file: Path) -> Iterator[Finding]:
    """What is wrong in one file; one that cannot be read is a finding of its own."""
    try:
        text = read_source(file)
        stages = configured_stages(file.parent)

        def more(symbols: Symbols) -> Iterator[Mistake]:
            yield from agent_mistakes(symbols)
            yield from stage_mistakes(symbols, stages)

        yield from check_module(text, str(file), more, stages)
    except (SyntaxError, UnicodeDecodeError) as error:
        yield Finding("HR100", f"the file does not parse: {error}", str(file), 1, 1)


def _summary(findings: int, files: int) -> str:
    found = "nothing found" if not findings else f"{findings} finding{'s' * (findings != 1)}"
    return f"{found} in {files} file{'s' * (files != 1)}"


Format: TypeAlias = Literal["mermaid", "text"]


def graph(target: str, form: Format) -> int:
    """Print the graph of a workflow; the exit code.

    Raises:
        HandrailError: there is no such workflow, or its source cannot be read.
    """
    source = source_of(load(target).definition.function)
    print((to_mermaid(source) if form == "mermaid" else to_text(source)).rstrip("\n"))
    return Exit.SUCCEEDED
