"""Whether an action changed in place what an earlier step returned.

Such a change is in no record, so a resume would go on from another value. What an action is given
is compared before and after it: its arguments, and the outputs that its function encloses.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

from handrail.errors import OutputChanged
from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.steps.verbs import PythonCall
from handrail.typed.schema import is_list, is_object, record_fields

if TYPE_CHECKING:
    from handrail.codec.codec import Codec
    from handrail.core.run_state import RunState
    from handrail.ports.journal import Journal

_FIXED = frozenset({str, int, float, bool, bytes, complex, type(None), FunctionType, MethodType})
"""Classes whose values cannot change in place, or are none."""

_HOLDERS = frozenset({list, tuple, set, frozenset})

Given = list[tuple[Any, str]]


class InPlace:
    """What the outputs of one run's steps are made of, by identity. Mutable."""

    def __init__(self, run: RunState, journal: Journal, codec: Codec) -> None:
        self._run = run
        self._journal = journal
        self._codec = codec
        self._whole: dict[int, str] = {}
        self._parts: dict[int, str] = {}
        self._last_whole = self._last_parts = ""

    def may_change(self, verb: PythonCall) -> bool:
        """True if the action is given anything that can change."""
        if any(type(one) not in _FIXED for one in verb.args):
            return True
        return bool(verb.kwargs) or bool(self._enclosed(verb))

    def before(self, verb: PythonCall) -> Given:
        """What the action may change, and what each is now."""
        given = [
            one for one in (*verb.args, *(verb.kwargs or {}).values()) if type(one) not in _FIXED
        ]
        given += self._enclosed(verb)
        return [(one, self._codec.identity(one)) for one in given]

    def _enclosed(self, verb: PythonCall) -> list[Any]:
        """The outputs that the action's function encloses."""
        cells = getattr(verb.action, "__closure__", None)
        if not cells:
            return []
        for path, result in self._since(self._last_whole):
            if type(result.output) not in _FIXED:
                self._whole[id(result.output)] = path
        self._last_whole = next(reversed(self._run.results), "")
        return [one for one in map(_content, cells) if id(one) in self._whole]

    def changed(self, path: str, before: Given) -> OutputChanged | None:
        """What the step at this path did to an output, if it did."""
        for value, then in before:
            now = self._codec.identity(value)
            if now != then:
                error = self._owner(path, value, _difference(json.loads(then), json.loads(now)))
                if error is not None:
                    return error
        return None

    def _owner(self, path: str, value: Any, place: str) -> OutputChanged | None:
        """The error of a value that changed at this place, if it is, or holds, an output."""
        for ended, result in self._since(self._last_parts):
            for part, _ in _parts(result.output):
                self._parts.setdefault(id(part), ended)
        self._last_parts = next(reversed(self._run.results), "")
        for part, inside in _parts(value):
            owner = self._parts.get(id(part))
            ended_as = None if owner is None else self._run.results.get(owner)
            if owner is None or ended_as is None:
                continue
            at = next((at for one, at in _parts(ended_as.output) if one is part), None)
            if at is None:  # another object, in the place of one that is gone
                continue
            if place.startswith(inside) and (place != inside or not inside):
                return OutputChanged(path, owner, at + place.removeprefix(inside))
            now, recorded = self._codec.identity(ended_as.output), self._recorded(owner)
            if recorded is not None and recorded != now:
                where = _difference(json.loads(recorded), json.loads(now))
                return OutputChanged(path, owner, where)
        return None

    def _recorded(self, path: str) -> str | None:
        """What the output of a step is in the journal; None where it is there no more."""
        for event in reversed(self._journal.events(self._run.setting.run_id)):
            if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.path == path:
                return self._codec.identity(event.result.output)
        return None

    def _since(self, last: str) -> Iterator[tuple[str, StepResult[Any]]]:
        """What ended after this step, the latest first."""
        return itertools.takewhile(
            lambda item: item[0] != last, reversed(self._run.results.items())
        )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _parts(value: Any) -> Iterator[tuple[Any, str]]:
    """A value and all in it that can change in place, each with its place in it."""
    stack, seen = [(value, "")], set[int]()
    while stack:
        one, at = stack.pop()
        if type(one) in _FIXED or id(one) in seen:
            continue
        seen.add(id(one))
        yield one, at
        if type(one) is dict:
            items = cast("dict[object, object]", one)
            stack += [(item, f"{at}[{key!r}]") for key, item in items.items()]
        elif type(one) in _HOLDERS:
            members = cast("list[Any]", one)
            stack += [(item, f"{at}[{index}]") for index, item in enumerate(members)]
        elif not isinstance(one, type):
            names = [field.argument for field in record_fields(type(one)) or ()]
            stack += [(getattr(one, name, None), f"{at}.{name}") for name in names]


def _difference(then: Any, now: Any) -> str:
    """The place of the first difference of two JSON trees that are not equal."""
    if is_object(then) and is_object(now) and then.get("$") == now.get("$"):
        key = next(key for key in {**then, **now} if then.get(key) != now.get(key))
        tagged = "$" in then
        at = "" if tagged and key == "v" else f".{key}" if tagged else f"[{key!r}]"
        return at + _difference(then.get(key), now.get(key))
    if is_list(then) and is_list(now):
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(then, now, strict=False))
        index = len(list(same))
        both = index < min(len(then), len(now))
        return f"[{index}]" + (_difference(then[index], now[index]) if both else "")
    return ""
