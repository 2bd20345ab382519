"""Converts Python values, JSON data or text to an annotated type.

Three ways in, from the strictest to the most lenient:

- ``fit`` and ``fit_json`` take JSON as it stands: ``"5"`` is no int, ``true`` is no int;
- ``convert`` does the same for a named input, and its error names it;
- ``from_text`` reads what a person typed: ``5`` is an int, ``yes`` a bool, ``RED`` a member.

A value that is of the type already passes unchanged. msgspec does the work wherever it can. What it
refuses (unions of two records, enums of mixed values or by name, ``InitVar``, names that cannot be
resolved) this module converts part by part.
"""

from __future__ import annotations

import re
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, cast

import msgspec

from handrail.errors import HandrailError, InvalidInput
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import (
    LISTS,
    MAPS,
    SETS,
    RecordField,
    describe_type,
    is_object,
    is_pydantic,
    members,
    plain,
    pydantic_adapter,
    record_fields,
    shape_of,
)

_TRUE = frozenset({"true", "yes", "on", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "off", "n", "f", "0"})
_NONE = frozenset({"none", "null"})
_PLAIN_MISMATCH = re.compile(r"Expected (`[^`]+`, got `[^`]+`|one of .*)", re.DOTALL)
_STRUCTURED = re.compile(r"Expected `(array|object)\b")
_NOT_JSON = (msgspec.DecodeError, ValueError)  # invalid UTF-8 raises a ValueError
_JSON_KINDS: dict[type, str] = {dict: "object", list: "array", type(None): "null"}
_TOO_DEEP = "it is nested too deeply"


class DoesNotFit(HandrailError, ValueError):
    """A value does not fit a type; ``path`` (``.items[2].name``) is the part that does not."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.reason} - at `${self.path}`" if self.path else self.reason

    def inside(self, step: str) -> DoesNotFit:
        """The error for the value that has this one at ``step`` (``.name``, ``[2]``)."""
        return DoesNotFit(self.reason, step + self.path)


def convert(value: Any, annotation: Any, *, name: str) -> Any:
    """``value`` as the annotated type; the same object if it is of the type already.

    An annotation that is missing, or cannot be resolved, takes anything.

    Raises:
        InvalidInput: it does not fit; the text names ``name``, the value, the type and the place.
    """
    try:
        return fit(value, annotation)
    except DoesNotFit as misfit:
        raise InvalidInput(name, short_repr(value), _expected(annotation, misfit)) from misfit


def from_text(text: str, annotation: Any, *, name: str) -> Any:
    """``text``, as a person types it, converted to the annotated type.

    ``str`` stays as it is. Structured types are written as JSON. Without an annotation the result
    is the text's JSON value; if the text is no JSON, or a JSON string, it is the text itself.

    Raises:
        InvalidInput: as ``convert``.
    """
    try:
        return _read(text, annotation)
    except DoesNotFit as misfit:
        raise InvalidInput(name, short_repr(text), _expected(annotation, misfit)) from misfit


def fit(value: Any, type_: Any) -> Any:
    """``value`` (JSON data, or a Python value) as ``type_``, without guessing.

    Raises:
        DoesNotFit: the error has the reason, and the path of the part that does not fit.
    """
    try:
        return _fit(value, type_)
    except RecursionError:
        raise DoesNotFit(_TOO_DEEP) from None


def fit_json(text: str, type_: Any) -> Any:
    """The JSON document ``text`` as ``type_``; numbers for a Decimal keep all their digits.

    Raises:
        DoesNotFit: it is not JSON, or JSON of another type.
    """
    data = text.encode("utf-8", "surrogatepass")
    if not is_pydantic(plain(type_)):
        try:
            return msgspec.json.decode(data, type=type_, dec_hook=_custom)
        except Exception:  # noqa: BLE001, S110  # the code below finds out what is wrong
            pass
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise DoesNotFit(_TOO_DEEP) from None
    except _NOT_JSON as error:
        raise DoesNotFit(str(error)) from None
    return fit(value, type_)


def conforms(value: Any, type_: Any) -> bool:
    """True if ``value`` already is of ``type_``; what cannot be checked counts as conforming."""
    if hasattr(type_, "__metadata__") and _constrained(type_):
        return False
    type_ = plain(type_)
    if type_ is Any:
        return True
    union = members(type_)
    if union is not None:
        return any(conforms(value, member) for member in union)
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Literal:
        return any(type(value) is type(argument) and value == argument for argument in arguments)
    if typing.is_typeddict(origin or type_):
        return _is_typed_dict(value, type_)
    cls = origin or type_
    if not _is_instance(value, cls):
        return False
    return not arguments or _parts_conform(value, cls, arguments)


def _constrained(type_: Any) -> bool:
    return any(isinstance(part, msgspec.Meta) for part in type_.__metadata__)


def _is_instance(value: Any, cls: Any) -> bool:
    if cls is int and isinstance(value, bool):
        return False
    if cls in LISTS and isinstance(value, (str, bytes)):
        return False  # a str is a Sequence[str] to Python, but authors never mean that
    try:
        return isinstance(value, cls)
    except TypeError:
        return True


def _parts_conform(value: Any, cls: Any, arguments: tuple[Any, ...]) -> bool:
    if cls in MAPS:
        key, item = arguments
        pairs = cast("Mapping[Any, Any]", value).items()
        return all(conforms(k, key) and conforms(v, item) for k, v in pairs)
    if cls is tuple:
        if arguments[-1] is ...:
            return all(conforms(part, arguments[0]) for part in value)
        return len(value) == len(arguments) and all(map(conforms, value, arguments))
    if cls in SETS or cls in LISTS:
        return not _can_be_read_twice(value) or all(conforms(v, arguments[0]) for v in value)
    return True


def _can_be_read_twice(value: Any) -> bool:
    """False for iterators: looking at their items would use them up."""
    return iter(value) is not value


def _is_typed_dict(value: Any, type_: Any) -> bool:
    if not is_object(value):
        return False
    return all(
        conforms(value[field.key], field.type) if field.key in value else not field.required
        for field in record_fields(type_) or ()
    )


def _fit(value: Any, type_: Any) -> Any:
    if conforms(value, type_):
        return value
    if is_pydantic(plain(type_)):
        return _custom(plain(type_), value)
    try:
        made = msgspec.convert(value, type_, str_keys=True, dec_hook=_custom)
    except msgspec.ValidationError as error:
        return _built(value, plain(type_), _from_msgspec(error))
    except Exception as error:  # noqa: BLE001  # a refused type, or a user's constructor raised
        return _built(value, plain(type_), DoesNotFit(f"{type(error).__name__}: {error}"))
    return value if type(made) is type(value) and conforms(value, plain(type_)) else made


def _from_msgspec(error: msgspec.ValidationError) -> DoesNotFit:
    text, cause = str(error), error.__cause__
    if isinstance(cause, DoesNotFit):
        _, _, path = text.removeprefix(str(cause)).partition(" - at `$")
        return cause.inside(path.removesuffix("`"))
    reason, _, path = text.rpartition(" - at `$")
    return DoesNotFit(reason, path.removesuffix("`")) if reason else DoesNotFit(text)


def _custom(type_: Any, value: Any) -> Any:
    """Convert to a class that msgspec does not know; this is msgspec's ``dec_hook``."""
    if conforms(value, type_):
        return value
    if is_pydantic(type_):
        return _by_pydantic(value, type_)
    cls = typing.get_origin(type_) or type_
    misfit = DoesNotFit(f"Expected `{describe_type(type_)}`, got `{_kind(value)}`")
    if not isinstance(cls, type):
        raise misfit
    if issubclass(cls, PurePath) and isinstance(value, str):
        return cls(value)
    for base in (str, int, float):
        if issubclass(cls, base):
            return cls(_fit(value, base))
    return _built(value, type_, misfit)


def _by_pydantic(value: Any, type_: Any) -> Any:
    try:
        return pydantic_adapter(type_).validate_python(value)
    except ValueError as error:
        problems: list[dict[str, Any]] = cast("Any", error).errors()
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
        raise DoesNotFit(f"{first['msg']}{more}", path) from error


def _built(value: Any, type_: Any, misfit: DoesNotFit) -> Any:
    """Convert ``value`` part by part; raise ``misfit`` if the type has no parts to try."""
    union = members(type_)
    if union is not None:
        return _first_member(value, union, misfit)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _enum_member(value, type_)
    origin, arguments = shape_of(type_)
    if origin is typing.Literal:
        raise _not_among(arguments, value)
    parts = _collection(value, origin, arguments)
    if parts is not None:
        return parts
    if is_object(value) and (found := record_fields(type_)) is not None:
        return _record(value, origin, found)
    raise misfit


def _first_member(value: Any, union: tuple[Any, ...], misfit: DoesNotFit) -> Any:
    """``value`` as the first member that it fits; records that know all its keys go first."""
    misfits: list[tuple[Any, DoesNotFit]] = []
    for member in sorted(union, key=lambda member: _unknown_keys(value, member)):
        try:
            return _fit(value, member)
        except DoesNotFit as one:
            misfits.append((member, one))
    real = [(member, one) for member, one in misfits if plain(member) is not type(None)]
    if len(real) == 1:
        raise real[0][1]
    if any(one.path or "missing" in one.reason for _, one in real):
        told = "; ".join(
            f"not {describe_type(member, fields=False)}: {one}" for member, one in real
        )
        raise DoesNotFit(told)
    names = " | ".join(describe_type(member, fields=False) for member in union)
    raise DoesNotFit(f"Expected `{names}`, got `{_kind(value)}`") from misfit


def _unknown_keys(value: Any, type_: Any) -> int:
    if not is_object(value):
        return 0
    found = record_fields(plain(type_))
    return 0 if found is None else len(set(value) - {field.key for field in found})


def _enum_member(value: Any, type_: type[Enum]) -> Enum:
    for member in type_:
        if type(member.value) is type(value) and member.value == value:
            return member
    if isinstance(value, str) and value in type_.__members__:
        return type_.__members__[value]
    raise _not_among([member.value for member in type_], value)


def _not_among(choices: Iterable[Any], value: Any) -> DoesNotFit:
    listed = ", ".join(map(short_repr, choices))
    return DoesNotFit(f"Expected one of {listed}, got {short_repr(value)}")


def _collection(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    """A list, set, tuple or mapping of fitted parts; None if the type or value is none of these."""
    if origin in MAPS and is_object(value):
        key, item = arguments or (Any, Any)
        return {_key(k, key): _at(v, item, f"[{k!r}]") for k, v in value.items()}
    if not isinstance(value, (list, tuple, set, frozenset)):
        return None
    items = list(cast("Iterable[Any]", value))
    if origin is tuple and arguments and arguments[-1] is not ...:
        if len(items) != len(arguments):
            raise DoesNotFit(f"Expected `array` of length {len(arguments)}, got {len(items)}")
        return tuple(
            _at(v, t, f"[{i}]") for i, (v, t) in enumerate(zip(items, arguments, strict=True))
        )
    maker = _maker(origin)
    if maker is None:
        return None
    inner = arguments[0] if arguments else Any
    return maker(_at(item, inner, f"[{index}]") for index, item in enumerate(items))


def _key(key: Any, type_: Any) -> Any:
    """A mapping's key; in JSON it is text, whatever its type."""
    try:
        return msgspec.convert(key, type_, strict=not isinstance(key, str), dec_hook=_custom)
    except Exception:  # noqa: BLE001  # `_fit` finds out what is wrong
        return _at(key, type_, f"[{key!r}]")


def _maker(origin: Any) -> Callable[[Iterable[Any]], Any] | None:
    if origin in {tuple, deque, frozenset}:
        return cast("Callable[[Iterable[Any]], Any]", origin)
    if origin in SETS:
        return set
    return list if origin in LISTS else None


def _at(value: Any, type_: Any, step: str) -> Any:
    try:
        return _fit(value, type_)
    except DoesNotFit as misfit:
        raise misfit.inside(step) from misfit


def _record(value: dict[str, Any], cls: Any, fields: tuple[RecordField, ...]) -> Any:
    """A record from a mapping; keys that the record does not know are ignored, as by msgspec."""
    made: dict[str, Any] = {}
    for field in fields:
        if field.key in value:
            made[field.argument] = _at(value[field.key], field.type, f".{field.key}")
        elif field.required:
            raise DoesNotFit(f"Object missing required field `{field.key}`")
    _check_tag(value, cls)
    if typing.is_typeddict(cls):
        return made
    try:
        return cls(**made)
    except Exception as error:
        raise DoesNotFit(str(error) or type(error).__name__) from error


def _check_tag(value: dict[str, Any], cls: Any) -> None:
    config = getattr(cls, "__struct_config__", None)
    if config is None or config.tag is None or config.tag_field not in value:
        return
    if value[config.tag_field] != config.tag:
        raise DoesNotFit(f"Invalid value {value[config.tag_field]!r}", f".{config.tag_field}")


def _read(text: str, type_: Any) -> Any:
    """The first reading of ``text`` that fits: JSON that is no string, the text, a JSON string."""
    bare = plain(type_)
    data = _json_or_text(text)
    if bare is Any:
        return data
    if bare is str or isinstance(data, str):
        return _read_text(text, type_)
    try:
        return fit_json(text, type_)
    except DoesNotFit as of_json:
        telling = of_json.path or not _PLAIN_MISMATCH.fullmatch(of_json.reason)
        try:
            return _typed(text, type_)
        except DoesNotFit:
            if telling or isinstance(data, (dict, list)):
                raise of_json from None
            raise


def _json_or_text(text: str) -> Any:
    """The JSON value of ``text``; ``text`` itself if it is no JSON, or a JSON string."""
    try:
        data = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (*_NOT_JSON, RecursionError):
        return text
    return text if isinstance(data, str) else data


def _read_text(text: str, type_: Any) -> Any:
    try:
        return _typed(text, type_)
    except DoesNotFit as misfit:
        if text.strip()[:1] in {'"', "[", "{"}:  # meant as JSON: that error says more
            return fit_json(text, type_)
        if _STRUCTURED.match(misfit.reason):
            raise DoesNotFit("write it as JSON") from misfit
        raise


def _typed(text: str, type_: Any) -> Any:
    """``text`` converted as a person types a single value of the type."""
    bare = plain(type_)
    union = members(bare)
    if union is not None:
        return _typed_member(text, union, type_)
    word = text.strip().lower()
    if bare is bool:
        return _typed_bool(word)
    if bare is type(None) and word in _NONE:
        return None
    if isinstance(bare, type) and issubclass(bare, Enum):
        return _typed_enum(text.strip(), bare)
    if bare is str:
        return fit(text, type_)
    try:
        return msgspec.convert(text.strip(), type_, strict=False, dec_hook=_custom)
    except Exception:  # noqa: BLE001  # `fit` finds out what is wrong
        return fit(text, type_)


def _typed_member(text: str, union: tuple[Any, ...], type_: Any) -> Any:
    takes_text = any(plain(member) is str for member in union)
    for member in sorted(union, key=lambda member: plain(member) is str):
        if takes_text and plain(member) is type(None) and text.strip() != "null":
            continue  # if any text fits, only JSON's own word means None
        try:
            return _typed(text, member)
        except DoesNotFit:
            continue
    raise DoesNotFit(f"Expected `{describe_type(type_)}`, got `str`")


def _typed_bool(word: str) -> bool:
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise DoesNotFit("say true or false")


def _typed_enum(text: str, type_: type[Enum]) -> Enum:
    for member in type_:
        if str(member.value) == text:
            return member
    return _enum_member(text, type_)


def _expected(annotation: Any, misfit: DoesNotFit) -> str:
    """The type, and the misfit's reason and path if they say more than the type."""
    expected = describe_type(annotation)
    if not misfit.path and _PLAIN_MISMATCH.fullmatch(misfit.reason):
        return expected
    return f"{expected} ({misfit})"


def _kind(value: object) -> str:
    cls = type(value)
    return _JSON_KINDS.get(cls, cls.__name__)
