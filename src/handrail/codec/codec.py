"""Typed values as JSON text, and back.

Theory of operation. A value becomes a JSON tree (``writing``): what JSON has stays as it is,
anything else becomes an object with a tag, ``"$"``. The tag says which class it was: a short word
for Python's own classes (``builtins``), ``module:qualname`` for data classes, whose fields are keys
beside it (``classes``), a name and ``"$v"`` for what a ``TypeCodec`` has encoded. A text can be
read without knowing the declared type, as long as its classes are loaded; the declared type helps
if classes are local, or were renamed since (``names``).

A value is recorded only if it reads back equal: of the same class, and with the same text when it
is written again. For builtins and ordinary data classes that follows from how they are built; for
any other class a trial reading checks it each time, and so it does for an object that has
attributes besides its fields: these are not written, and must come back by themselves (``state``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import msgspec

from handrail.codec.names import Classes, Locating, Met, Resolution
from handrail.codec.plain import plain_json
from handrail.codec.reading import VALUE, Reading, Unreadable
from handrail.codec.state import ABSENT, STATE, Stated, name_of
from handrail.codec.unresolved import Unresolvable, Unresolved
from handrail.codec.writing import (
    INT_MAX,
    INT_MIN,
    TAG,
    TOO_DEEP,
    WITH_TEXT,
    Refused,
    Writer,
    Writing,
    class_of,
    of_cycle,
)
from handrail.errors import DefinitionError, OutputNotSerializable
from handrail.shortening import shortened
from handrail.typed.jsonsafe import short_repr
from handrail.typed.reference import reference
from handrail.typed.schema import is_list, is_object

Steps: TypeAlias = list[str]

_SHOWN = 80


def difference(was: Any, became: Any) -> Refused:
    """The error for two different trees: the first part that differs, as it is in each."""
    steps: list[str] = []
    why = "it comes back as {}, not as {}"
    while (inner := _first(was, became)) is not None:
        step, was, became = inner
        steps.append(f".{step[1:]}" if step.startswith(STATE) else step)
        if step.startswith(STATE):
            why = "it is no field, and comes back as {}, not as {}: make it a field, or derive it"
            break
    refused = Refused(why.format(_cut(became), _cut(was)))
    refused.steps = [(None, step) for step in reversed(steps)]
    return refused


def _first(was: Any, became: Any) -> tuple[str, Any, Any] | None:
    if is_object(was) and is_object(became) and TAG in was and was[TAG] == became.get(TAG):
        for key in {**was, **became}:
            one, other = was.get(key, ABSENT), became.get(key, ABSENT)
            if key.startswith(STATE) and _differ(one, other):
                return key, one, other
    if is_object(was) and is_object(became) and was.keys() == became.keys():
        if was.get(TAG) != became.get(TAG):
            return None
        key = next(key for key, item in was.items() if _differ(item, became[key]))
        return _step(was, key), was[key], became[key]
    if is_list(was) and is_list(became) and len(was) == len(became):
        pairs = enumerate(zip(was, became, strict=True))
        return next((f"[{i}]", one, other) for i, (one, other) in pairs if _differ(one, other))
    return None


def _differ(one: Any, other: Any) -> bool:
    return msgspec.json.encode(one) != msgspec.json.encode(other)


def _step(node: dict[str, Any], key: str) -> str:
    if TAG not in node:
        return f"[{key!r}]"
    return "" if key in {"v", VALUE} else f".{key}"


def _cut(tree: Any) -> str:
    if tree is ABSENT:
        return "nothing"
    return shortened(msgspec.json.encode(tree).decode(), _SHOWN)


class Naming(Writing):
    """A writing for ``identity``: a name replaces each part that cannot be written. Mutable."""

    names = True
    __slots__ = ()

    def unordered(self, pairs: list[Any]) -> list[Any]:
        """The pairs of a dict, sorted by the texts of their keys."""
        return sorted(pairs, key=_text_of_key)

    def write(self, value: Any, depth: int) -> Any:
        """The tree of the value, or its name."""
        try:
            return super().write(value, depth)
        except Refused as refused:
            if refused.why == TOO_DEEP:
                raise  # the name replaces the whole: a value that contains itself has no last part
            return name_of(value)


_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def _text_of_key(pair: list[Any]) -> bytes:
    return _encode_sorted(pair[0])


_Class: TypeAlias = type[Any]
_MARK = '"$"'
UNKNOWN = object()
"""For ``dump``: the declared type is not known, so nothing is checked against it."""

_CONTAINERS: frozenset[type] = frozenset({list, dict})
_AS_JSON: frozenset[type] = WITH_TEXT | {int, float, list, dict}


def _is_a_class(_: Any, __: Any, value: Any) -> None:
    if not isinstance(value, type):
        raise DefinitionError(f"TypeCodec(type=...) takes a class, got {short_repr(value)}.")
    if value in _AS_JSON:
        raise DefinitionError(
            f"TypeCodec({value.__name__}): it is recorded as JSON already, which cannot change."
        )


def _is_callable(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not callable(value):
        raise DefinitionError(
            f"TypeCodec({attribute.name}=...) takes a callable, got {short_repr(value)}."
        )


def _is_a_name(_: Any, __: Any, value: Any) -> None:
    taken = isinstance(value, str) and value.startswith("handrail:")
    if value and (not isinstance(value, str) or ":" not in value or taken):
        raise DefinitionError(
            f"TypeCodec(name={value!r}): a name contains a colon, and does not begin with "
            f"'handrail:', so that it means nothing else in a record; 'app:Money', say."
        )


@attrs.frozen
class TypeCodec:
    """How values of a class of yours are recorded.

    ``encode`` turns a value into anything that the codec can write, ``decode`` turns that back into
    the value. The record has ``name`` (default: ``module:qualname``); if you set it, you may rename
    or move the class later. Subclasses are not included.
    """

    type: _Class = attrs.field(validator=_is_a_class)
    encode: Callable[[Any], Any] = attrs.field(validator=_is_callable)
    decode: Callable[[Any], Any] = attrs.field(validator=_is_callable)
    name: str = attrs.field(default="", validator=_is_a_name)

    @property
    def tag(self) -> str:
        """The tag that the record has for such values."""
        return self.name or reference(self.type)

    def write(self, writing: Writing, value: Any, depth: int) -> Any:
        """The object that the record has for a value."""
        writing.proven = False
        try:
            encoded = self.encode(value)
        except Exception as error:
            why = f"its TypeCodec's encode raised {type(error).__name__}: {error}"
            raise Refused(why) from error
        return {TAG: self.tag, VALUE: writing.write(encoded, depth + 1)}


def _distinct(_: Any, __: Any, types: tuple[TypeCodec, ...]) -> None:
    for what, names in (
        ("class", [f"{kind.type.__module__}.{kind.type.__qualname__}" for kind in types]),
        ("name", [kind.tag for kind in types]),
    ):
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise DefinitionError(f"Codec: two TypeCodecs for the {what} {double}.")


def _as_tuple(types: Sequence[TypeCodec]) -> tuple[TypeCodec, ...]:
    for one in types:
        if not isinstance(one, TypeCodec):
            raise DefinitionError(f"Codec(types=...) takes TypeCodecs, got {short_repr(one)}.")
    return tuple(types)


def _classes_of(codec: Codec) -> Classes:
    writers: dict[type, Writer] = {kind.type: kind.write for kind in codec.types}
    return Classes(writers, {kind.tag: kind.decode for kind in codec.types})


@attrs.frozen
class Codec:
    """Writes values as JSON text, and reads them back with the types they had."""

    types: tuple[TypeCodec, ...] = attrs.field(default=(), converter=_as_tuple, validator=_distinct)
    _classes: Classes = attrs.field(
        default=attrs.Factory(_classes_of, takes_self=True), init=False, eq=False, repr=False
    )

    def dump(
        self,
        value: Any,
        *,
        where: str = "output",
        root: str = "output",
        declared: Any = UNKNOWN,
    ) -> str:
        """The value as JSON text.

        The error begins with ``where`` (a step, say) and ``root`` (what the value is called there).
        ``declared`` is the type that ``load`` will get. If it is set, classes that ``load`` would
        not find are refused; ``load`` finds classes local to a function only in ``declared``.

        Raises:
            OutputNotSerializable: the value would not read back equal; the error names the part.
        """
        try:
            return self._dumped(value, declared)
        except Refused as refused:
            told = of_cycle(refused)
            field, why, cause = root + told.path, told.why, refused.__cause__
        except RecursionError:
            field, why, cause = root, TOO_DEEP, None
        except RuntimeError as error:
            field, why, cause = root, f"it changed while it was being written: {error}", error
        raise OutputNotSerializable(where, field, why) from cause

    def _dumped(self, value: Any, declared: Any) -> str:
        kind = class_of(value)
        if kind is Unresolved:
            return str(value.text)
        try:
            if kind in WITH_TEXT or (kind is int and INT_MIN <= value <= INT_MAX):
                return msgspec.json.encode(value).decode()
            if kind in _CONTAINERS and (text := plain_json(value)) is not None:
                return text
            return self._written(value, Writing(self._classes), declared)
        except UnicodeEncodeError:
            return self._written(value, Writing(self._classes, surrogates=True), declared)

    def _written(self, value: Any, writing: Writing, declared: Any) -> str:
        data = msgspec.json.encode(writing.write(value, 0))
        if not writing.proven:
            self._try(value, data, writing)
        if declared is not UNKNOWN and writing.classes:
            known = declared is Any and self._classes.finds(writing.classes)
            lost = () if known else Resolution(self._classes, declared).lost(writing.classes)
            if lost:
                Locating(self._classes, lost, surrogates=writing.surrogates).write(value, 0)
        return data.decode()

    def _try(self, value: Any, data: bytes, writing: Writing) -> None:
        """Read the text and write the value again; refuse it if that differs, or other state."""
        try:
            back = Reading(Met(self._classes, writing.classes)).read(msgspec.json.decode(data))
        except Unreadable as error:
            why = f"{error.tag} does not come back: {error.why}"
            raise Refused(why) from error.__cause__
        again = Writing(self._classes, surrogates=writing.surrogates)
        text = msgspec.json.encode(again.write(back, 0))
        if text != data:
            raise difference(msgspec.json.decode(data), msgspec.json.decode(text))
        if writing.stated or again.stated:
            was, became = (
                Stated(self._classes, surrogates=writing.surrogates).write(one, 0)
                for one in (value, back)
            )
            if _differ(was, became):
                raise difference(was, became)
        for tag, cls in writing.classes.items():
            again.met(tag, cls)

    def load(self, text: str, declared: Any = Any) -> Any:
        """The value that ``dump`` wrote as ``text``.

        Its classes are searched in ``declared``, then in the loaded modules. Nothing is imported.

        Raises:
            Unresolvable: a class was not found, or cannot be built from what was recorded.
        """
        tree = msgspec.json.decode(text)
        if _MARK not in text:
            return tree
        names = Resolution(self._classes, declared)
        try:
            return Reading(names).read(tree)
        except Unreadable as error:
            if not error.unknown:
                raise Unresolvable(error.tag, error.why, misfit=error.misfit) from error.__cause__
        except RecursionError as error:
            raise Unresolvable("something", "it is nested too deeply to be read here") from error
        try:
            return Reading(names, placed=True).read(msgspec.json.decode(text), declared)
        except Unreadable as error:
            raise Unresolvable(error.tag, error.why, misfit=error.misfit) from error.__cause__

    def load_or_keep(self, text: str) -> Any:
        """The value, or ``Unresolved`` if one of its classes was not found."""
        try:
            return self.load(text)
        except Unresolvable as error:
            return Unresolved(text, error.tag)

    def identity(self, value: Any) -> str:
        """A text that is the same for equal values; never raises.

        A part that cannot be recorded counts as ``<module:Type>``, a function as
        ``<module:qualname>``. The order of a dict's items makes no difference.
        """
        try:
            return self._named(value)
        except Exception:  # noqa: BLE001  # a user's properties may do anything
            return msgspec.json.encode(name_of(value)).decode()

    def _named(self, value: Any) -> str:
        kind = class_of(value)
        try:
            if kind in WITH_TEXT or (kind is int and INT_MIN <= value <= INT_MAX):
                return msgspec.json.encode(value).decode()
            if kind is list and (text := plain_json(value)) is not None and "{" not in text:
                return text  # it has no dict, whose keys would have to be put in order
            return _encode_sorted(Naming(self._classes).write(value, 0)).decode()
        except UnicodeEncodeError:
            naming = Naming(self._classes, surrogates=True)
            return _encode_sorted(naming.write(value, 0)).decode()
