"""Detects that an action changed an earlier step's output in place.

No record has such a change, so a resume would continue from another value. The engine compares what
an action can reach as text, before and after it runs: its arguments, and the outputs in its
function's closure, defaults, bound object or partial arguments.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from handrail.errors import OutputChanged
from handrail.steps.leaves import PythonCall
from handrail.typed.schema import fields_of, is_list, is_object

if TYPE_CHECKING:
    from handrail.codec.codec import Codec
    from handrail.core.run_state import RunState


_FIXED = frozenset({str, int, float, bool, bytes, complex, type(None), FunctionType, MethodType})
"""Classes whose values cannot change in place, or are functions."""

_HOLDERS = frozenset({list, tuple, set, frozenset})
_LOOKED_AT = 1_000
"""How many parts of each output, and object that a function holds, are examined."""

Given = list[tuple[Any, str]]


class InPlace:
    """Knows the outputs of one run's steps, and their parts, by identity. Mutable."""

    def __init__(self, run: RunState, codec: Codec) -> None:
        self._run = run
        self._codec = codec
        self._outputs = _OutputIndex(run)

    def may_change(self, verb: PythonCall) -> bool:
        """True if the action can reach anything that can change in place."""
        # fast road of in_place.InPlace.before
        if any(type(arg) not in _FIXED for arg in verb.args):
            return True
        return bool(verb.kwargs) or bool(self._outputs_in(verb))

    def before(self, verb: PythonCall) -> Given:
        """The objects that the action may change, each with its content now, as identity text."""
        # long road of in_place.InPlace.may_change
        given = [
            arg for arg in (*verb.args, *(verb.kwargs or {}).values()) if type(arg) not in _FIXED
        ]
        given += self._outputs_in(verb)
        return [(arg, self._codec.identity(arg)) for arg in given]

    def _outputs_in(self, verb: PythonCall) -> list[Any]:
        """The outputs that the action's function holds, whole or in part."""
        action = verb.action
        if type(action) is FunctionType and not (
            action.__closure__ or action.__defaults__ or action.__kwdefaults__
        ):  # it holds nothing, as most do
            return []
        try:
            held = list(_mutable_objects_in(action))
            if not held:
                return []
            tops = self._outputs.up_to_now()
            parts = (part for arg in held for part, _ in itertools.islice(_parts(arg), _LOOKED_AT))
            owners = {tops.get(id(part)) for part in parts}
        except Exception:  # noqa: BLE001  # a user's properties may do anything
            return []
        ended = (self._run.results.get(owner) for owner in owners if owner is not None)
        return [result.output for result in ended if result is not None]

    def changed(self, path: str, before: Given) -> OutputChanged | None:
        """The error of the step at this path, if it changed an output."""
        for value, then in before:
            now = self._codec.identity(value)
            if now != then:
                error = self._error(path, value, _difference(json.loads(then), json.loads(now)))
                if error is not None:
                    return error
        return None

    def _error(self, path: str, value: Any, place: str) -> OutputChanged | None:
        """The error for a value that changed at ``place``, if it is, or contains, an output."""
        reached = {id(part): inside for part, inside in _parts(value)}
        for owner, result in self._run.results.items():
            for part, at in _parts(result.output):
                inside = reached.get(id(part))
                if inside is not None and place.startswith(inside) and place != (inside or None):
                    return OutputChanged(path, owner, at + place.removeprefix(inside))
        return None


class _OutputIndex:
    """The paths of steps by the ids of their outputs' parts. Mutable.

    It takes the first parts of each output: to look at all of 1 MiB takes 35 ms.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._paths: dict[int, str] = {}
        self._last = ""

    def up_to_now(self) -> dict[int, str]:
        """The index, with the steps that ended since the last call added."""
        results = self._run.results
        new = itertools.takewhile(lambda item: item[0] != self._last, reversed(results.items()))
        for ended, result in new:
            for part, _ in itertools.islice(_parts(result.output), _LOOKED_AT):
                self._paths.setdefault(id(part), ended)
        self._last = next(reversed(results), "")
        return self._paths


def _mutable_objects_in(action: Any) -> Iterator[Any]:
    """The objects inside a callable, through any depth of functions, that can change in place."""
    stack, seen = [action], set[int]()
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            stack += [_content(cell) for cell in value.__closure__ or ()]
            stack += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        elif isinstance(value, functools.partial):
            stack += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, (MethodType, BuiltinFunctionType)):
            owner = value.__self__
            stack += [getattr(value, "__func__", None), owner]
            if not isinstance(owner, (type, ModuleType)):
                stack += getattr(owner, "__dict__", {}).values()
        elif type(value) not in _FIXED and not isinstance(value, (type, ModuleType)):
            yield value


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _parts(value: Any) -> Iterator[tuple[Any, str]]:
    """A value and all parts of it that can change in place, each with its place; lazily."""
    stack, seen = [iter([(value, "")])], set[int]()
    while stack:
        for one, at in stack[-1]:
            if type(one) in _FIXED or id(one) in seen:
                continue
            seen.add(id(one))
            yield one, at
            stack.append(_inside(one, at))
            break
        else:
            stack.pop()


def _inside(value: Any, at: str) -> Iterator[tuple[Any, str]]:
    if type(value) is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(item) not in _FIXED:
                yield item, f"{at}[{key!r}]"
    elif type(value) in _HOLDERS:
        for index, item in enumerate(cast("list[Any]", value)):
            if type(item) not in _FIXED:
                yield item, f"{at}[{index}]"
    elif not isinstance(value, type):
        for _, argument, _, _ in fields_of(type(value)) or ():
            yield getattr(value, argument, None), f"{at}.{argument}"


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
