"""What a node's output is, by that of its step; files that were converted call these too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from handrail import Choice, CommandResult, StepResult, WorkflowError

MISSING: Any = object()
"""What ``look_up`` finds where there is nothing."""
OUTPUTS = " outputs"
"""The name, which no template can spell, of the outputs of workhorse's nodes by their names."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def begin(inputs: Mapping[str, Any], name: str, file: Path) -> dict[str, Any]:
    """What the templates of a file of Conductor see at the beginning."""
    about = {"input": dict(inputs), "name": name, "file": str(file), "dir": str(file.parent)}
    return {"workflow": about, "context": {"iteration": 0, "history": []}}


def store(
    seen: dict[str, Any], name: str, output: Any, *, group: bool = False, flat: bool = False
) -> None:
    """Let templates see the output of a node that has ended; ``flat``: those of workhorse's."""
    if flat:
        seen |= output
        seen.setdefault(OUTPUTS, {})[name] = output
        return
    seen[name] = output if group else {"output": output}
    seen["context"]["iteration"] += 1
    seen["context"]["history"].append(name)


def public(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a workflow of workhorse's that has ended."""
    return {key: got for key, got in seen.items() if key != OUTPUTS}


def failed(reason: str, data: Mapping[str, Any] | None = None) -> WorkflowError:
    """The failure that a file asks for, with its data in the text."""
    said = f" {json.dumps(data, ensure_ascii=False, default=str)}" if data else ""
    return WorkflowError(f"{reason}{said}")


def look_up(seen: Any, path: str) -> Any:
    """The value at a path with dots; ``MISSING`` if there is none."""
    for name in path.split("."):
        if not isinstance(seen, Mapping) or name not in seen:
            return MISSING
        seen = cast("Mapping[str, Any]", seen)[name]
    return seen


class Verdict(TypedDict):
    """What a validator says of an answer."""

    passed: bool
    reason: str


def printed(done: CommandResult[Any], *fields: str, strict: bool = False) -> dict[str, Any]:
    """What a program printed, its exit code, and the fields of the JSON that it printed.

    Raises:
        WorkflowError: one of ``fields`` is not in it; or it is no object, and that is ``strict``.
    """
    try:
        found: Any = json.loads(done.stdout)
    except ValueError:
        found = None
    there = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    lacking = [field for field in fields if field not in there]
    if lacking or (strict and not isinstance(found, dict)):
        what = f"no JSON object with {', '.join(lacking) or 'fields'}"
        raise WorkflowError(f"it printed {what}: {done.stdout[:200]!r}")
    about = {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.exit_code}
    return about | there


def fields_of(done: CommandResult[Any], *fields: str) -> dict[str, Any]:
    """These fields of the JSON that a program printed, and nothing else."""
    found = printed(done, *fields)
    return {field: found[field] for field in fields}


def selected(answer: Choice[Any]) -> dict[str, Any]:
    """The value of a person's choice, and the text that belongs to it."""
    more = {answer.prompt_for: answer.text} if answer.prompt_for else {}
    return {"selected": answer.value, "additional_input": more}


def grouped(
    keys: Sequence[Any],
    ends: Sequence[Any],
    shapes: Sequence[Callable[[Any], Any]] = (),
    *,
    listed: bool = False,
) -> dict[str, Any]:
    """The outputs of members by key, or as a list, and the errors of those that failed.

    ``shapes`` make an output of what a member's step gave; one is that of all members.
    """
    outputs, errors = dict[Any, Any](), dict[str, Any]()
    for number, (key, end) in enumerate(zip(keys, ends, strict=True)):
        if isinstance(end, StepResult) and end.status not in {"succeeded", "defaulted"}:
            errors[str(key)] = {"exception_type": end.error_type, "message": end.error}
        else:
            got = cast("Any", end).output if isinstance(end, StepResult) else end
            outputs[key] = shapes[number % len(shapes)](got) if shapes else got
    found = list(outputs.values()) if listed else outputs
    return {"outputs": found, "errors": errors, "count": len(keys)}


def entries(
    items: Sequence[Any], variable: str, path: str = "", **more: Any
) -> list[dict[str, Any]]:
    """For each item the names that its templates have: the item, its index, its key."""
    found = list[dict[str, Any]]()
    for index, item in enumerate(items):
        key: Any = item if path else index
        for name in path.split(".")[1:]:
            key = key[name]
        found.append({**more, variable: item, "_index": index, "_key": key})
    return found


def key_of(entry: Mapping[str, Any]) -> Any:
    """The key of an entry."""
    return entry["_key"]


def seconds(text: str) -> float:
    """The seconds of a text such as ``5m``, ``2.5s``, ``500ms`` or ``60``.

    Raises:
        WorkflowError: it is no duration.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", text)
    if match is None:
        raise WorkflowError(f"{text!r} is no duration, such as 5m")
    return float(match[1]) * _UNITS[match[2] or "s"]


def compared(value: Any, operator: str, text: str) -> bool:
    """Whether a branch's case fits: equal as text, or in order as numbers, if both are."""
    if value is MISSING:
        return False
    one, other = cast("tuple[Any, Any]", (str(value), text))
    if operator in {"==", "!="}:
        return bool((one == other) == (operator == "=="))
    try:
        one, other = float(one), float(other)
    except ValueError:
        one, other = str(value), text
    equal = operator.endswith("=") and one == other
    return bool(equal or (one < other if "<" in operator else one > other))


def incr(value: Any = 0) -> int:
    """One more than a value that is a number, or 1."""
    try:
        return int(float(value)) + 1
    except (TypeError, ValueError):
        return 1


def seed(**_: Any) -> int:
    """The number that workhorse's counters begin with."""
    return 0


def beside(folder: Path, text: str) -> str:
    """A path, from the folder of a workflow's file."""
    return str(folder / text)


def folders(said: Any) -> list[str] | None:
    """Folders, from a list or a text with blanks between; None if there are none."""
    return [str(one) for one in (said.split() if isinstance(said, str) else said or ())] or None
