"""Writes a value as a JSON tree; what JSON does not have becomes an object with a tag.

Plain are str, bool, None, an int of 64 bits, a finite float, a list, and a dict whose keys are str
other than ``"$"``. Anything else becomes an object whose first key is ``"$"``, its tag. Only exact
classes are written: a subclass would be read back as its base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from handrail.codec.plain import MANY, PART, is_plain

TAG = "$"
MAX_DEPTH = 200
TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"

class_of: Callable[[object], type] = type
"""``type(value)``, for type checkers."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class Refused(Exception):
    """A part of a value that cannot be written; ``steps`` lead to it, innermost first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[tuple[object, str]] = []

    def add_step(self, container: object, step: str) -> Refused:
        """This error, with one step more: ``container`` has the refused part at ``step``."""
        self.steps.append((container, step))
        return self

    @property
    def path(self) -> str:
        """Where the part is in the whole value: ``.items[3].lock``."""
        return "".join(step for _, step in reversed(self.steps))


def of_cycle(refused: Refused) -> Refused:
    """The error; for a value nested too deeply because it contains itself, one that says so."""
    if refused.why != TOO_DEEP:
        return refused
    seen: set[int] = set()
    told = Refused("it contains itself")
    for container, step in reversed(refused.steps):
        if id(container) in seen:
            told.steps.reverse()
            return told
        seen.add(id(container))
        told.add_step(container, step)
    return refused


class Writing:
    """Writes one value, and notes the classes it meets. Mutable.

    ``proven`` stays true while every part is of a kind that is known to read back equal; otherwise
    a trial reading is needed. ``stated``: something has attributes that are no fields.
    ``surrogates``: strings may have surrogates, which UTF-8 cannot have.
    """

    names = False
    """True if the text only identifies the value, and is never read again."""
    __slots__ = ("_known", "as_is", "classes", "proven", "stated", "surrogates")

    def __init__(self, known: Writers, *, surrogates: bool = False) -> None:
        self._known = known
        self.surrogates = surrogates
        self.as_is = ALL_BUT_TEXT if surrogates else WITH_TEXT
        self.classes: dict[str, type] = {}
        self.proven = True
        self.stated = False

    def beside(self, node: dict[str, Any], state: dict[str, Any], depth: int) -> None:
        """Note that an object, written as ``node``, has attributes that are no fields."""
        del node, state, depth
        self.proven, self.stated = False, True

    def write(self, value: Any, depth: int) -> Any:
        """The tree of ``value``, which may share its plain parts.

        Raises:
            Refused: a part of it cannot be written.
        """
        kind = class_of(value)
        if kind in self.as_is:
            return value
        if depth > MAX_DEPTH:
            raise Refused(TOO_DEEP)
        writer = self._known.writers.get(kind) or self._known.learn(kind)
        return writer(self, value, depth)

    def met(self, tag: str, cls: type) -> None:
        """Note the class that a tag stands for in this value."""
        known = self.classes.setdefault(tag, cls)
        if known is not cls:
            raise Refused(f"two classes named {tag} are in it, and one name can mean only one")

    def items(self, holder: object, items: Iterable[Any], depth: int) -> list[Any]:
        """The trees of some items, in order."""
        written: list[Any] = []
        try:
            for item in items:
                kept = type(item) in self.as_is
                written.append(item if kept else self.write(item, depth + 1))
        except Refused as refused:
            raise refused.add_step(holder, f"[{len(written)}]") from refused.__cause__
        return written

    def pairs(self, holder: object, pairs: Iterable[tuple[Any, Any]], depth: int) -> list[Any]:
        """The trees of some keys and values, in order."""
        written: list[Any] = []
        key: Any = None
        try:
            for key, item in pairs:
                self.hashed(key)
                written.append([self.write(key, depth + 1), self.write(item, depth + 1)])
        except Refused as refused:
            raise refused.add_step(holder, f"[{_short_key(key)}]") from refused.__cause__
        return written

    def unordered(self, pairs: list[Any]) -> list[Any]:
        """The pairs of a dict in the order in which they are written: their own."""
        return pairs

    def hashed(self, element: Any) -> None:
        """Note a set's element or a key; two of a user's class may become equal to each other."""
        if type(element) not in _PROVEN_KEYS:
            self.proven = False


Writer: TypeAlias = Callable[[Writing, Any, int], Any]


class Writers(Protocol):
    """The writers of all classes."""

    @property
    def writers(self) -> Mapping[type, Writer]:
        """The writers of the classes that were met already."""
        ...

    def learn(self, kind: type, /) -> Writer:
        """The writer of a class that was not met yet.

        Raises:
            Refused: its values cannot be written.
        """
        ...


ALL_BUT_TEXT: frozenset[type] = frozenset({bool, type(None)})
WITH_TEXT: frozenset[type] = ALL_BUT_TEXT | {str}
_PROVEN_KEYS: frozenset[type] = WITH_TEXT | {int, float, bytes}


def write_text(writing: Writing, value: str, depth: int) -> Any:
    """A string; escaped if it has lone surrogates, which JSON in UTF-8 cannot have."""
    del writing, depth
    try:
        value.encode()
    except UnicodeEncodeError:
        return {TAG: "str", "escaped": value.encode("unicode_escape").decode("ascii")}
    return value


def write_int(writing: Writing, value: int, depth: int) -> Any:
    """An int; as text if readers of JSON would make a float of it."""
    del writing, depth
    if INT_MIN <= value <= INT_MAX:
        return value
    return {TAG: "int", "v": int_text(value)}


def int_text(value: int) -> str:
    """Decimal digits; hexadecimal ones for an int so large that Python might refuse decimals."""
    return str(value) if value.bit_length() <= 1024 else hex(value)


def write_float(writing: Writing, value: float, depth: int) -> Any:
    """A float; as text if it is not finite."""
    del writing, depth
    return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}


def write_list(writing: Writing, value: list[Any], depth: int) -> Any:
    """A list; the same object if all its parts are plain."""
    as_is = writing.as_is
    if as_is.issuperset(map(type, value)):
        return value
    written: list[Any] | None = None
    index = 0
    try:
        for start in range(0, len(value), PART):
            part = value if len(value) <= PART else value[start : start + PART]
            if len(part) >= MANY and is_plain(part):
                continue
            for index, item in enumerate(part, start):
                kind = class_of(item)
                if kind in as_is or (kind is int and INT_MIN <= item <= INT_MAX):
                    continue
                tree = writing.write(item, depth + 1)
                if tree is not item:
                    if written is None:
                        written = value.copy()
                    written[index] = tree
    except Refused as refused:
        raise refused.add_step(value, f"[{index}]") from refused.__cause__
    return value if written is None else written


def write_dict(writing: Writing, value: dict[Any, Any], depth: int) -> Any:
    """A dict; the same object if all its parts are plain, and pairs if a key is not plain."""
    if len(value) >= MANY and is_plain(value):
        return value
    as_is = writing.as_is
    written: dict[Any, Any] | None = None
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str or key == TAG or (writing.surrogates and not _encodable(key)):
                break
            kind = class_of(item)
            if kind in as_is or (kind is int and INT_MIN <= item <= INT_MAX):
                continue
            tree = writing.write(item, depth + 1)
            if tree is not item:
                if written is None:
                    written = value.copy()
                written[key] = tree
        else:
            return value if written is None else written
    except Refused as refused:
        raise refused.add_step(value, f"[{_short_key(key)}]") from refused.__cause__
    pairs = writing.pairs(value, value.items(), depth)
    return {TAG: "dict", "v": writing.unordered(pairs)}


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short_key(key: Any) -> str:
    from handrail.typed.jsonsafe import short_repr

    return short_repr(key, 40)
