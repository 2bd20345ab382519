"""Detects that an action changed an earlier step's output in place.

No record has such a change, so a resume would continue from another value. The engine compares what
an action can reach before and after it runs: its arguments, and the outputs in its function's
closure, defaults, bound object or partial arguments. It restores a changed output to the recorded
value, so that code which handles the failure sees what a resume would see.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from handrail.errors import OutputChanged
from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.steps.leaves import PythonCall
from handrail.typed.schema import fields_of, is_list, is_object, record_fields

if TYPE_CHECKING:
    from handrail.codec.codec import Codec
    from handrail.core.run_state import RunState
    from handrail.ports.journal import Journal


_FIXED = frozenset({str, int, float, bool, bytes, complex, type(None), FunctionType, MethodType})
"""Classes whose values cannot change in place, or are functions."""

_HOLDERS = frozenset({list, tuple, set, frozenset})
_LOOKED_AT = 1_000
"""How many parts of each object that a function holds are examined: it may be a client's cache."""

Given = list[tuple[Any, str]]


class InPlace:
    """Knows the outputs of one run's steps, and their parts, by identity. Mutable."""

    def __init__(self, run: RunState, journal: Journal, codec: Codec) -> None:
        self._run = run
        self._journal = journal
        self._codec = codec
        self._tops = _OutputIndex(run, _LOOKED_AT)
        self._whole = _OutputIndex(run)

    def may_change(self, verb: PythonCall) -> bool:
        """True if the action can reach anything that can change in place."""
        if any(type(one) not in _FIXED for one in verb.args):
            return True
        return bool(verb.kwargs) or bool(self._outputs_in(verb))

    def before(self, verb: PythonCall) -> Given:
        """The objects that the action may change, each with its content now, as identity text."""
        given = [
            one for one in (*verb.args, *(verb.kwargs or {}).values()) if type(one) not in _FIXED
        ]
        given += self._outputs_in(verb)
        return [(one, self._codec.identity(one)) for one in given]

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
            tops = self._tops.up_to_now()
            parts = (part for one in held for part, _ in itertools.islice(_parts(one), _LOOKED_AT))
            owners = {tops.get(id(part)) for part in parts}
        except Exception:  # noqa: BLE001  # a user's properties may do anything
            return []
        ended = (self._run.results.get(owner) for owner in owners if owner is not None)
        return [result.output for result in ended if result is not None]

    def changed(self, path: str, before: Given) -> OutputChanged | None:
        """The error of the step at this path, if it changed an output; restores that output."""
        for value, then in before:
            now = self._codec.identity(value)
            if now != then:
                error = self._owner(path, value, _difference(json.loads(then), json.loads(now)))
                if error is not None:
                    self._put_back(error.owner)
                    return error
        return None

    def _put_back(self, owner: str) -> None:
        ended, recorded = self._run.results.get(owner), self._recorded(owner)
        if ended is None or recorded is None:
            return
        put_back(ended.output, recorded.output)
        self._tops.know(owner, ended.output)
        self._whole.know(owner, ended.output)

    def _owner(self, path: str, value: Any, place: str) -> OutputChanged | None:
        """The error for a value that changed at ``place``, if it is, or contains, an output."""
        whole = self._whole.up_to_now()
        for part, inside in _parts(value):
            owner = whole.get(id(part))
            ended_as = None if owner is None else self._run.results.get(owner)
            if owner is None or ended_as is None:
                continue
            at = next((at for one, at in _parts(ended_as.output) if one is part), None)
            if at is None:  # another object, with the id of one that is gone
                continue
            if place.startswith(inside) and (place != inside or not inside):
                return OutputChanged(path, owner, at + place.removeprefix(inside))
            now, recorded = self._codec.identity(ended_as.output), self._recorded(owner)
            then = now if recorded is None else self._codec.identity(recorded.output)
            if then != now:
                return OutputChanged(path, owner, _difference(json.loads(then), json.loads(now)))
        return None

    def _recorded(self, path: str) -> StepResult[Any] | None:
        """The recorded result of a step; None if the journal has none any more."""
        for event in reversed(self._journal.events(self._run.setting.run_id)):
            if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.path == path:
                return event.result
        return None


class _OutputIndex:
    """The paths of steps by the ids of their outputs' parts. Mutable.

    It takes at most ``most`` parts of each output: to look at all of 1 MiB takes 35 ms.
    """

    def __init__(self, run: RunState, most: int | None = None) -> None:
        self._run = run
        self._most = most
        self._paths: dict[int, str] = {}
        self._last = ""

    def up_to_now(self) -> dict[int, str]:
        """The index, with the steps that ended since the last call added."""
        results = self._run.results
        new = itertools.takewhile(lambda item: item[0] != self._last, reversed(results.items()))
        for ended, result in new:
            for part, _ in itertools.islice(_parts(result.output), self._most):
                self._paths.setdefault(id(part), ended)
        self._last = next(reversed(results), "")
        return self._paths

    def know(self, path: str, output: Any) -> None:
        """Index a step's output again: it is made of other objects now."""
        for part, _ in itertools.islice(_parts(output), self._most):
            self._paths[id(part)] = path


def _mutable_objects_in(action: Any) -> Iterator[Any]:
    """The objects inside a callable, through any depth of functions, that can change in place."""
    stack, seen = [action], set[int]()
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            stack += [_content(cell) for cell in one.__closure__ or ()]
            stack += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
        elif isinstance(one, functools.partial):
            stack += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, (MethodType, BuiltinFunctionType)):
            owner = one.__self__
            stack += [getattr(one, "__func__", None), owner]
            if not isinstance(owner, (type, ModuleType)):
                stack += getattr(owner, "__dict__", {}).values()
        elif type(one) not in _FIXED and not isinstance(one, (type, ModuleType)):
            yield one


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


def _inside(one: Any, at: str) -> Iterator[tuple[Any, str]]:
    if type(one) is dict:
        for key, item in cast("dict[object, object]", one).items():
            if type(item) not in _FIXED:
                yield item, f"{at}[{key!r}]"
    elif type(one) in _HOLDERS:
        for index, item in enumerate(cast("list[Any]", one)):
            if type(item) not in _FIXED:
                yield item, f"{at}[{index}]"
    elif not isinstance(one, type):
        for _, argument, _, _ in fields_of(type(one)) or ():
            yield getattr(one, argument, None), f"{at}.{argument}"


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


_MISSING: Any = object()


def put_back(live: Any, recorded: Any) -> Any:
    """``live``, made equal to ``recorded`` in place; ``recorded`` itself where that cannot be done.

    So code that holds ``live``, or a part of it, sees the recorded value, too.
    """
    kind: type[Any] = live.__class__
    if kind is not type(recorded):
        return recorded
    if issubclass(kind, dict):
        before: dict[Any, Any] = {**live}
        live.clear()
        for key, one in recorded.items():
            live[key] = put_back(before.get(key, _MISSING), one)
    elif issubclass(kind, (list, deque)):
        made = _items(live, recorded)
        live.clear()
        live.extend(made)
    elif issubclass(kind, set):
        live.clear()
        live.update(recorded)
    elif kind is bytearray:
        live[:] = recorded
    elif kind is tuple:
        made = _items(live, recorded)
        same = len(made) == len(live) and all(map(_is_same, made, live))
        return live if same else tuple(made)
    elif fields := record_fields(kind):
        for name in (field.argument for field in fields):
            one = getattr(live, name, _MISSING)
            made_one = put_back(one, getattr(recorded, name, _MISSING))
            if made_one is not one:
                _set_attribute(live, name, made_one)
    else:
        return recorded
    return live


def _items(live: Any, recorded: Any) -> list[Any]:
    pairs = zip_longest(live, recorded, fillvalue=_MISSING)
    return [put_back(was, one) for was, one in pairs if one is not _MISSING]


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _set_attribute(value: Any, name: str, made: Any) -> None:
    with contextlib.suppress(AttributeError, TypeError):  # it is frozen, so it was not set
        setattr(value, name, made)
