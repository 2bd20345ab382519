"""Masks secrets in what handrail shows of a run.

Theory of operation. To learn whether a value contains a secret, the mask packs it (in C) and
searches the bytes. So values without secrets, which are nearly all, are neither copied nor walked.
Only a value in which something was found is rebuilt around it, with the same types.

Objects that are not records (see ``jsonsafe.record_items``) are left unchanged. Their text may
contain a secret: a sink that writes it must mask the text; see ``ports.sink``.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec

from handrail.secrets.spellings import SHORTEST, utf8
from handrail.secrets.tokens import OF_TOKENS, before_token, may_contain_token, unfinished_start
from handrail.secrets.values import SecretFinder, SecretValues, mask_text
from handrail.typed.field_words import NAMES, TERMS
from handrail.typed.jsonsafe import CUT, MAX_DEPTH, Json, json_safe, record_items

# How much of a streamed text can be searched for secrets before the rest has arrived.
#
# A text is shown up to the first thing that may yet become a secret: the beginning of a value, or a
# word that may be a token. A secret or word that crosses this place is kept back whole, so that the
# part before it is masked as in the complete text. The last few characters shown matter for the
# next piece: some tokens count only at the beginning of a word.

_CONTEXT = 5
"""How far before its start a token's pattern looks (``;255m``); every secret is longer."""


def context_of(text: str) -> str:
    """The end of a text already shown that is needed to mask the text after it."""
    return text[-_CONTEXT:] if text and (text[-1].isalnum() or text[-1] in OF_TOKENS) else ""


def maskable_end(text: str, finder: SecretFinder | None) -> int:
    """The index up to which the text can be masked now; the rest must precede the next piece."""
    end = min(_value_start(text, finder), unfinished_start(text))
    before = -1
    while end != before:
        before = end
        end = min(_before_values(text, end, finder), before_token(text, end))
    return end


def _value_start(text: str, finder: SecretFinder | None) -> int:
    """Start of the longest beginning of a secret value that ends the text; else the text's end."""
    found = len(text)
    if finder is None or not text or text[-1] not in finder.prefix_end_chars:
        return found
    for value in finder.names:
        here = text.find(value[0], max(0, len(text) - len(value) + 1), found)
        while here >= 0:
            if value.startswith(text[here:]):
                found = here
                break
            here = text.find(value[0], here + 1, found)
    return found


def _before_values(text: str, end: int, finder: SecretFinder | None) -> int:
    """``end``, or the start of a value that crosses it."""
    if finder is None or end == len(text) or not finder.may_occur_in(text):
        return end
    across = (
        m.start() for m in finder.pattern_in(text).finditer(text) if m.start() < end < m.end()
    )
    return next(across, end)


T = TypeVar("T")
_Known: TypeAlias = dict[int, tuple[Any, Any]]
"""By id, the objects of a value that are masked already, and what is shown of them."""

NAME_LEAST = 12
"""Shorter values stay in names and paths: authors choose those, and they are often plain words."""

PLAIN = frozenset({
    type(None), bool, int, float, type, date, datetime, time, timedelta, Decimal, UUID,
})  # fmt: skip
"""Types whose values contain no text."""


class Mask:
    """Masks secrets in what handrail shows of a run: given values, and known shapes of tokens.

    Values without a secret are returned as the same object.
    """

    __slots__ = ("_in_names", "_latin", "last_clean_path", "values")

    def __init__(self, values: SecretValues) -> None:
        self.values = values
        self._in_names = {n: value for n, value in values.items() if len(value) >= NAME_LEAST}
        self._latin = {n: utf8(value).decode("latin-1") for n, value in values.items()}
        self.last_clean_path = ""  # the last path found to contain no secret

    def text(self, text: str) -> str:
        """The text with values as ``${THEIR_NAME}`` and tokens as their ends: ``ghp_***a1b2``."""
        return text if len(text) < SHORTEST else mask_text(text, self.values)

    def value(self, value: T) -> T:
        """Any value without its secrets, of the same type as far as possible."""
        if type(value) in PLAIN or not self.may_be_in(value):
            return value
        return cast("T", self._rebuilt(value, (), {}))

    def plain(self, data: Json) -> Json:
        """JSON data of a masked value, masked again: its objects' texts may contain secrets."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, list):
            return [self.plain(item) for item in data]
        if isinstance(data, dict):
            return {self.text(key): self._field(key, item) for key, item in data.items()}
        return data

    def _field(self, key: str, item: Json) -> Json:
        if isinstance(item, str) and len(item) < NAME_LEAST and (key in TERMS or key in NAMES):
            return item  # already masked before, so it is one of handrail's terms, or a name
        return self.plain(item)

    def may_be_in(self, value: object) -> bool:
        """True if there may be a secret in the value; fast if there is none."""
        try:
            packed = _pack(_each_once(value, set()))
        except Exception:  # noqa: BLE001  # a value that cannot be packed is walked
            return True
        finder = self.values.finder
        if finder is not None and finder.may_occur_in(packed):
            return True
        return may_contain_token(packed)

    def has_clean(self, path: str) -> bool:
        """True if the path is shown unchanged; remembers the last such path."""
        if path == self.last_clean_path or len(path) < NAME_LEAST:
            return True
        if self._name(path) is not path:
            return False
        self.last_clean_path = path
        return True

    def _name(self, name: str) -> str:
        return name if len(name) < NAME_LEAST else mask_text(name, self._in_names)

    # -- rebuilding -----------------------------------------------------------------------------

    def _rebuilt(self, value: Any, above: tuple[int, ...], known: _Known) -> Any:
        if type(value) in PLAIN or isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (bytes, bytearray)):
            return self._masked_bytes(value)
        if len(above) >= MAX_DEPTH or id(value) in above:
            return CUT
        if id(value) in known:
            return known[id(value)][1]
        try:
            shown = self._composite(value, (*above, id(value)), known)
        except Exception:  # noqa: BLE001  # a user's class may refuse any operation
            shown = self.plain(json_safe(value))
        known[id(value)] = value, shown
        return shown

    def _masked_bytes(self, value: bytes | bytearray) -> bytes | bytearray:
        text = value.decode("latin-1")
        shown = mask_text(text, self._latin)
        return value if shown == text else type(value)(shown.encode("latin-1", "replace"))

    def _composite(self, value: Any, above: tuple[int, ...], known: _Known) -> Any:
        kind: Any = value.__class__
        if issubclass(kind, Mapping):
            return self._mapping(value, above, known)
        if record_items(value) is not None:
            return self._record(value, above, known)
        if issubclass(kind, (list, tuple, deque, AbstractSet)):
            return self._collection(value, above, known)
        if isinstance(value, PurePath):
            shown = self.text(str(value))
            return value if shown == str(value) else type(value)(shown)
        return value

    def _mapping(self, value: Mapping[Any, Any], above: tuple[int, ...], known: _Known) -> Any:
        pairs = [
            (key, item, self._rebuilt(key, above, known), self._rebuilt(item, above, known))
            for key, item in value.items()
        ]
        if all(key is new_key and item is new for key, item, new_key, new in pairs):
            return value
        shown = {new_key: new for _, _, new_key, new in pairs}
        if type(value) is dict or not isinstance(value, dict):
            return shown
        twin = copy.copy(value)
        twin.clear()
        twin.update(shown)
        return twin

    def _collection(self, value: Any, above: tuple[int, ...], known: _Known) -> Any:
        items = list(cast("Iterable[Any]", value))
        shown = [self._rebuilt(item, above, known) for item in items]
        if all(new is item for new, item in zip(shown, items, strict=True)):
            return value
        if isinstance(value, deque):
            return deque(shown, value.maxlen)
        return value.__class__(shown)

    def _record(self, value: Any, above: tuple[int, ...], known: _Known) -> Any:
        """A masked record, of any kind that ``jsonsafe`` knows."""
        cls: Any = value.__class__
        own = _is_own(cls)
        changes: dict[str, Any] = {}
        for name in _fields_of(cls):
            item = getattr(value, name, None)
            if own and name in TERMS:
                continue
            new = self._named(item) if own and name in NAMES else self._rebuilt(item, above, known)
            if new is not item:
                changes[name] = new
        if not changes:
            return value
        if isinstance(value, tuple):
            return cast("Any", value)._replace(**changes)
        if own:
            if "output" in changes and "masked" in _fields_of(cls):
                changes["masked"] = True
            return replace(value, **changes)
        twin = copy.copy(value)
        put = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else _set
        for name, new in changes.items():
            put(twin, name, new)
        return twin

    def _named(self, item: Any) -> Any:
        if isinstance(item, str):
            return self._name(item)
        kind: Any = item.__class__
        if kind is tuple:
            shown = tuple(map(self._named, item))
            return item if shown == item else shown
        return item

    # -- streamed texts --------------------------------------------------------------------------

    def split(self, text: str, before: str = "") -> tuple[str, str, str]:
        """The part of a text that may be shown now, the rest, and context for the next call.

        The rest may be the start of a secret: put it before the next piece. ``before`` is the
        context from the previous call. However a text is cut into pieces, the parts shown add up to
        the masked whole.
        """
        end = maskable_end(text, self.values.finder)
        shown = self.after(before, text[:end])
        return shown, text[end:], context_of(before + shown)

    def after(self, before: str, text: str) -> str:
        """The masked text, as it continues a text already shown."""
        shown = self.text(before + text)
        return shown[len(before) :] if shown.startswith(before) else self.text(text)


# -- kinds of values -------------------------------------------------------------------------------

_set = object.__setattr__


def _opaque(value: Any) -> object:
    """The parts of an unpackable object that are searched; None if it is not a record."""
    kind: Any = value.__class__
    if issubclass(kind, PurePath):
        return str(value)
    if issubclass(kind, Mapping):
        return dict(value)
    if issubclass(kind, (deque, AbstractSet)):
        return list(value)
    items = record_items(value)
    return None if items is None else [item for _, item in items]


_HOLDERS = ("result", "output", "value", "final_output", "step_results")
"""The fields of handrail's own records that may hold the result of a workflow."""


def _each_once(value: Any, seen: set[int]) -> object:
    """The value for the search, with results of workflows taken apart: a child's is held by those
    of all steps around it, and to search each copy would double the work with each level.
    """
    kind: Any = value.__class__
    if kind is list or kind is tuple:
        several = value and _holders(value[0].__class__)
        return [_each_once(item, seen) for item in value] if several else value
    names = _holders(kind)
    if not names:
        return value
    if id(value) in seen:
        return None
    parts: list[object] = []
    is_plain = True
    for name in names:  # not a comprehension: most records are plain, and it is for each of them
        one = getattr(value, name)
        parts.append(part := _each_once(one, seen))
        is_plain = is_plain and part is one
    if is_plain:
        return value
    seen.add(id(value))
    return [*parts, *(getattr(value, name) for name in _fields_of(kind) if name not in names)]


@lru_cache(maxsize=256)
def _holders(cls: Any) -> tuple[str, ...]:
    return tuple(name for name in _HOLDERS if _is_own(cls) and name in _fields_of(cls))


_pack = msgspec.msgpack.Encoder(enc_hook=_opaque).encode


@lru_cache(maxsize=256)
def _is_own(cls: Any) -> bool:
    return cls.__module__.startswith("handrail.model.") and is_dataclass(cls)


@lru_cache(maxsize=256)
def _fields_of(cls: Any) -> tuple[str, ...]:
    if issubclass(cls, msgspec.Struct):
        names: tuple[str, ...] = cls.__struct_fields__
        return names
    if is_dataclass(cls):
        return tuple(field.name for field in fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return tuple(attribute.name for attribute in cls.__attrs_attrs__)
    return tuple(cls._fields if hasattr(cls, "_fields") else cls.model_fields)
