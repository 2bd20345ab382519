"""Makes a value that was changed in place what its record says again."""

from __future__ import annotations

import contextlib
from collections import deque
from itertools import zip_longest
from typing import Any

from handrail.typed.schema import record_fields

_MISSING: Any = object()


def put_back(live: Any, recorded: Any) -> Any:
    """What stands for the recorded value from now on: ``live``, made equal to it, where that can be
    done; so whoever holds it, or a part of it, sees the recorded value, too.
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
        same = len(made) == len(live) and all(map(_is, made, live))
        return live if same else tuple(made)
    elif fields := record_fields(kind):
        for name in (field.argument for field in fields):
            one = getattr(live, name, _MISSING)
            made_one = put_back(one, getattr(recorded, name, _MISSING))
            if made_one is not one:
                _set(live, name, made_one)
    else:
        return recorded
    return live


def _items(live: Any, recorded: Any) -> list[Any]:
    pairs = zip_longest(live, recorded, fillvalue=_MISSING)
    return [put_back(was, one) for was, one in pairs if one is not _MISSING]


def _is(one: Any, other: Any) -> bool:
    return one is other


def _set(value: Any, name: str, made: Any) -> None:
    with contextlib.suppress(AttributeError, TypeError):  # it is frozen, so nobody has set it
        setattr(value, name, made)
