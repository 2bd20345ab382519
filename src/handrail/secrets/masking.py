"""What is shown of a run, without its secrets.

Theory of operation. Whether a value holds a secret is found out by packing it (in C) and looking
for the secrets in the bytes; so what holds none, which is nearly everything, is neither copied nor
walked over. Only where one was found the value is rebuilt around it, with the same types.

Objects of classes that are no records (see ``jsonsafe.record_items``) are left as they are: their
text may say a secret, and a sink that writes it masks its text; see ``ports.sink``.
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
from typing import Any, TypeVar, cast
from uuid import UUID

import msgspec

from handrail.secrets.needles import utf8
from handrail.secrets.values import SHORTEST, SecretFinder, SecretValues, mask_text, may_hold_token
from handrail.typed.jsonsafe import CUT, MAX_DEPTH, Json, json_safe, record_items

# How much of a text that is still coming can be looked through for secrets.
#
# A text is shown up to where something begins that may yet become a secret: a beginning of a value,
# or a word that may be a token. Whatever lies across that place is kept back as a whole, so that
# the part before it reads as it would with the rest. Of what was shown the last few characters
# matter to what comes next: some tokens are such only at the beginning of a word.

_STARTS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
    *("AKIA", "ASIA", "AIza", "eyJ"),
)
_PARTS_OF_STARTS = tuple({start[:end] for start in _STARTS for end in range(1, len(start))})
# A token is made of these, and so is the colour of a terminal that may stand before it.
_OF_TOKENS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.;[\x1b"

LONGEST_TOKEN = 8_192
"""Of a longer word the end is not waited for: it is base64 or the like."""

_CONTEXT = 5
"""So far back from its start a token's pattern looks (``;255m``); no secret is that short."""


def context_of(text: str) -> str:
    """What must be known of a text that was shown, to mask the one that follows it."""
    return text[-_CONTEXT:] if text and (text[-1].isalnum() or text[-1] in _OF_TOKENS) else ""


def maskable_end(text: str, finder: SecretFinder | None) -> int:
    """The index up to which the text can be masked now; the rest goes before what comes next."""
    end = min(_value_start(text, finder), _token_start(text))
    before = -1
    while end != before:
        before = end
        end = min(_before_values(text, end, finder), _before_word(text, end))
    return end


def _value_start(text: str, finder: SecretFinder | None) -> int:
    """Where the longest beginning of a value is with which the text ends; its end if none."""
    found = len(text)
    if finder is None or not text or text[-1] not in finder.inside:
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
    """``end``, or where a value starts that lies across it."""
    if finder is None or end == len(text) or not finder.may_occur_in(text):
        return end
    across = (m.start() for m in finder.pattern.finditer(text) if m.start() < end < m.end())
    return next(across, end)


def _token_start(text: str) -> int:
    """Where the word begins with which the text ends, if it may be a token; else the text's end."""
    here = len(text.rstrip(_OF_TOKENS))
    word = text[here:]
    if not word or len(word) > LONGEST_TOKEN:
        return len(text)
    if word.endswith(_PARTS_OF_STARTS) or _has_start(word):
        return here
    return len(text)


def _before_word(text: str, end: int) -> int:
    """``end``, or where a word begins that lies across it and may be a token."""
    if end == len(text):
        return end
    here = len(text[:end].rstrip(_OF_TOKENS))
    word = text[here : len(text) - len(text[end:].lstrip(_OF_TOKENS))]
    return here if len(word) <= LONGEST_TOKEN and _has_start(word) else end


def _has_start(word: str) -> bool:
    return any(start in word for start in _STARTS)


T = TypeVar("T")

NAME_LEAST = 12
"""Shorter values stay in names and paths: those are chosen by authors, and often plain words."""

PLAIN = frozenset({
    type(None), bool, int, float, type, date, datetime, time, timedelta, Decimal, UUID,
})  # fmt: skip
"""Types whose values hold no text."""

# What handrail calls things, in its own records: it stays, as it does in a journal.
_KEPT = frozenset({
    *("run_id", "seq", "at", "step_type", "status", "kind", "on_error", "error_type"),
    *("error_bases", "composed", "fingerprint", "digest", "stream", "direction", "decision"),
    *("phase", "rung", "backend", "cost_source", "type", "accepts"),
})  # fmt: skip
# What authors call things.
_NAMES = frozenset({
    *("path", "name", "key", "workflow_name", "failed_step", "signal", "signals", "superseded"),
    *("reused", "rerun", "scope", "tool", "orphaned", "left_out", "waiting_signals"),
})  # fmt: skip


class Mask:
    """Takes secrets out of what is shown of a run: the values given, and known shapes of tokens.

    Whatever it is given it gives back as it is, the same object, if there is no secret in it.
    """

    __slots__ = ("_in_names", "_latin", "clean", "values")

    def __init__(self, values: SecretValues) -> None:
        self.values = values
        self._in_names = {n: value for n, value in values.items() if len(value) >= NAME_LEAST}
        self._latin = {n: utf8(value).decode("latin-1") for n, value in values.items()}
        self.clean = ""  # the path that was looked at last, if it holds no secret

    def text(self, text: str) -> str:
        """The text with values as ``${THEIR_NAME}`` and tokens as their ends: ``ghp_***a1b2``."""
        return text if len(text) < SHORTEST else mask_text(text, self.values)

    def value(self, value: T) -> T:
        """Any value, of the same type as far as that can be."""
        if type(value) in PLAIN or not self.may_be_in(value):
            return value
        return cast("T", self._rebuilt(value, ()))

    def plain(self, data: Json) -> Json:
        """JSON data of what was masked, without what the texts of objects in it say."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, list):
            return [self.plain(item) for item in data]
        if isinstance(data, dict):
            return {self.text(key): self._field(key, item) for key, item in data.items()}
        return data

    def _field(self, key: str, item: Json) -> Json:
        if isinstance(item, str) and len(item) < NAME_LEAST and key in _KEPT | _NAMES:
            return item  # a secret there was masked before: it is a word of handrail's, or a name
        return self.plain(item)

    def may_be_in(self, value: object) -> bool:
        """True if there may be a secret in it; quick where there is none."""
        try:
            packed = _pack(value)
        except Exception:  # noqa: BLE001  # what cannot be packed is walked over
            return True
        finder = self.values.finder
        if finder is not None and finder.may_occur_in(packed):
            return True
        return may_hold_token(packed)

    def has_clean(self, path: str) -> bool:
        """True if a path is shown as it is; the last one of them is remembered."""
        if path == self.clean or len(path) < NAME_LEAST:
            return True
        if self._name(path) is not path:
            return False
        self.clean = path
        return True

    def _name(self, name: str) -> str:
        return name if len(name) < NAME_LEAST else mask_text(name, self._in_names)

    # -- rebuilding -----------------------------------------------------------------------------

    def _rebuilt(self, value: Any, above: tuple[int, ...]) -> Any:
        if type(value) in PLAIN or isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (bytes, bytearray)):
            return self._masked_bytes(value)
        if len(above) >= MAX_DEPTH or id(value) in above:
            return CUT
        try:
            return self._composite(value, (*above, id(value)))
        except Exception:  # noqa: BLE001  # a user's class may refuse anything
            return self.plain(json_safe(value))

    def _masked_bytes(self, value: bytes | bytearray) -> bytes | bytearray:
        text = value.decode("latin-1")
        shown = mask_text(text, self._latin)
        return value if shown == text else type(value)(shown.encode("latin-1", "replace"))

    def _composite(self, value: Any, above: tuple[int, ...]) -> Any:
        kind: Any = value.__class__
        if issubclass(kind, Mapping):
            return self._mapping(value, above)
        if record_items(value) is not None:
            return self._record(value, above)
        if issubclass(kind, (list, tuple, deque, AbstractSet)):
            return self._collection(value, above)
        if isinstance(value, PurePath):
            shown = self.text(str(value))
            return value if shown == str(value) else type(value)(shown)
        return value

    def _mapping(self, value: Mapping[Any, Any], above: tuple[int, ...]) -> Any:
        pairs = [
            (key, item, self._rebuilt(key, above), self._rebuilt(item, above))
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

    def _collection(self, value: Any, above: tuple[int, ...]) -> Any:
        items = list(cast("Iterable[Any]", value))
        shown = [self._rebuilt(item, above) for item in items]
        if all(new is item for new, item in zip(shown, items, strict=True)):
            return value
        if isinstance(value, deque):
            return deque(shown, value.maxlen)
        return value.__class__(shown)

    def _record(self, value: Any, above: tuple[int, ...]) -> Any:
        """A record of any of the kinds that ``jsonsafe`` knows."""
        cls: Any = value.__class__
        own = _is_own(cls)
        changes: dict[str, Any] = {}
        for name in _fields_of(cls):
            item = getattr(value, name, None)
            if own and name in _KEPT:
                continue
            new = self._named(item) if own and name in _NAMES else self._rebuilt(item, above)
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

    # -- texts that come in bits ----------------------------------------------------------------

    def split(self, text: str, before: str = "") -> tuple[str, str, str]:
        """What may be shown of a text by now, the rest, and what is to be known of what was shown.

        The rest, which may be the start of a secret, goes before what comes next; ``before`` is the
        third of the last time. However a text is cut, what is shown of its parts is what is shown
        of the whole.
        """
        end = maskable_end(text, self.values.finder)
        shown = self.after(before, text[:end])
        return shown, text[end:], context_of(before + shown)

    def after(self, before: str, text: str) -> str:
        """The text as it may be shown after what was shown before."""
        shown = self.text(before + text)
        return shown[len(before) :] if shown.startswith(before) else self.text(text)


# -- kinds of values -------------------------------------------------------------------------------

_set = object.__setattr__


def _opaque(value: Any) -> object:
    """What of an object that cannot be packed is looked into; nothing of one that is no record."""
    kind: Any = value.__class__
    if issubclass(kind, PurePath):
        return str(value)
    if issubclass(kind, Mapping):
        return dict(value)
    if issubclass(kind, (deque, AbstractSet)):
        return list(value)
    items = record_items(value)
    return None if items is None else [item for _, item in items]


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
