"""``handrail show``: what a workflow takes, which steps it may run, and how to run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.cli.exits import Exit
from handrail.cli.inputs import type_name
from handrail.cli.target import load
from handrail.model.definition import REQUIRED
from handrail.typed.jsonsafe import short_repr


def show(target: str, *, as_json: bool) -> int:
    """Print ``describe()`` of a workflow, for people or as JSON; the exit code."""
    workflow = load(target)
    described: Mapping[str, Any] = workflow.describe()
    if as_json:
        print(json.dumps(described, ensure_ascii=False, indent=2))
        return Exit.SUCCEEDED
    code = workflow.definition.function.__code__
    print(f"{described['name']}: {described['description'] or '(no description)'}")
    print(f"  {code.co_filename}:{code.co_firstlineno}")
    _section("Inputs", _inputs(workflow.definition.parameters))
    _section("Steps", [(step["path"], step["kind"]) for step in described["steps"]])
    required = [one["name"] for one in described["parameters"] if one["required"]]
    typed = "".join(f" --input {name}=VALUE" for name in required)
    print(f"\nhandrail run {shlex.quote(target)}{typed}")
    return Exit.SUCCEEDED


def _inputs(parameters: Sequence[Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for parameter in parameters:
        kind = "" if parameter.annotation is REQUIRED else type_name(parameter.annotation)
        if parameter.required:
            kind += " (required)"
        elif parameter.default is not REQUIRED:
            kind += f" = {short_repr(parameter.default)}"
        rows.append((parameter.name, kind.strip()))
    return rows


def _section(title: str, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        return
    width = max(len(name) for name, _ in rows)
    print(f"\n{title}")
    for name, told in rows:
        print(f"  {name:{width}}  {told}".rstrip())
