"""Values for another process: data as the codec writes it, code and objects by their names.

A function, a class, or an object that a module has under a name is written as that name; the reader
finds it by the name, and imports the module if need be. A partial and a bound method are written by
their parts. What the codec can write is written by value, except that an agent or a backend is
written by its name if it has one.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from handrail.codec.class_shapes import Shape
from handrail.codec.codec import Codec, TypeCodec
from handrail.codec.names import Classes, Locating, Resolution
from handrail.codec.reading import VALUE, Reading, Unreadable
from handrail.codec.unresolved import Unresolvable
from handrail.codec.writing import TAG, TOO_DEEP, Refused, Writer, Writing, of_cycle
from handrail.errors import CodeNotFound, OutputNotSerializable
from handrail.typed.jsonsafe import short_repr
from handrail.typed.reference import CodeNames, resolve_name

REF = "handrail:ref"
PARTIAL = "handrail:partial"
METHOD = "handrail:method"


class PortableCodec:
    """Writes values as JSON text that another process reads. Mutable: it learns names.

    ``home`` is the module that is searched first for the names of objects.
    """

    def __init__(self, codec: Codec, home: str = "") -> None:
        self._names = CodeNames(home)
        own: Mapping[type, TypeCodec] = {one.type: one for one in codec.types}
        writers: dict[type, Writer] = {
            types.FunctionType: self._code,
            types.BuiltinFunctionType: self._builtin,
            types.MethodType: self._method,
            functools.partial: _partial,
            **{kind: one.write for kind, one in own.items()},
        }
        decoders: dict[str, Callable[[Any], Any]] = {
            REF: resolve_name,
            PARTIAL: lambda made: functools.partial(made[0], *made[1], **made[2]),
            METHOD: lambda made: getattr(made[0], made[1]),
            **{one.tag: one.decode for one in codec.types},
        }
        self._classes = Classes(writers, decoders)

    def dump(self, value: Any, *, where: str, root: str) -> str:
        """The value as JSON text.

        Raises:
            OutputNotSerializable: a part of it is no data, and has no name.
        """
        try:
            return self._dumped(value)
        except Refused as refused:
            told = of_cycle(refused)
            field, why = root + told.path, told.why
        except RecursionError:
            field, why = root, TOO_DEEP
        raise OutputNotSerializable(where, field, why)

    def _dumped(self, value: Any) -> str:
        try:
            return self._written(value, surrogates=False)
        except UnicodeEncodeError:
            return self._written(value, surrogates=True)

    def _written(self, value: Any, *, surrogates: bool) -> str:
        writing = _Portably(self._classes, self._names, surrogates=surrogates)
        text = msgspec.json.encode(writing.write(value, 0)).decode()
        if writing.classes:
            lost = Resolution(self._classes, Any).lost(writing.classes)
            if lost:
                Locating(self._classes, lost, surrogates=surrogates).write(value, 0)
        return text

    def load(self, text: str, declared: Any = Any) -> Any:
        """The value that ``dump`` wrote as ``text``; modules that it names are imported.

        Raises:
            CodeNotFound: the text names something that is not here.
        """
        try:
            return Reading(_Importing(self._classes, declared), placed=declared is not Any).read(
                msgspec.json.decode(text), None if declared is Any else declared
            )
        except Unreadable as error:
            cause = error.__cause__
            if isinstance(cause, CodeNotFound):
                raise cause from None
            raise Unresolvable(error.tag, error.why, misfit=error.misfit) from cause

    # -- code -----------------------------------------------------------------------------------

    def _code(self, writing: Writing, value: Any, depth: int) -> Any:
        del writing, depth
        name = self._names.name_of(value)
        if name is None:
            raise Refused(f"{short_repr(value)} is not importable by name")
        return {TAG: REF, VALUE: name}

    def _builtin(self, writing: Writing, value: Any, depth: int) -> Any:
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            return self._code(writing, value, depth)
        return self._method(writing, value, depth)

    def _method(self, writing: Writing, value: Any, depth: int) -> Any:
        try:
            return self._code(writing, value, depth)  # a class method can be found by its name
        except Refused:
            owner = writing.write(value.__self__, depth + 1)
        return {TAG: METHOD, VALUE: [owner, value.__name__]}


def _partial(writing: Writing, value: functools.partial[Any], depth: int) -> Any:
    parts = [value.func, list(value.args), dict(value.keywords)]
    return {TAG: PARTIAL, VALUE: writing.items(value, parts, depth)}


class _Portably(Writing):
    """A writing in which a reference by name replaces a part that cannot be written. Mutable."""

    __slots__ = ("_names",)

    def __init__(self, known: Classes, names: CodeNames, *, surrogates: bool) -> None:
        super().__init__(known, surrogates=surrogates)
        self._names = names

    def write(self, value: Any, depth: int) -> Any:
        """The tree of the value, or a reference to its name; an agent is named if it can be."""
        if _is_named_first(value):
            name = self._names.name_of(value)
            if name is not None:
                return {TAG: REF, VALUE: name}
        try:
            return super().write(value, depth)
        except Refused as refused:
            name = None if refused.why == TOO_DEEP else self._names.name_of(value)
            if name is None:
                raise
            return {TAG: REF, VALUE: name}


def _is_named_first(value: Any) -> bool:
    """True for an agent or a backend."""
    return callable(getattr(value, "run", None)) or callable(getattr(value, "complete", None))


class _Importing(Resolution):
    """Finds classes by their names, and imports their modules if need be."""

    __slots__ = ()

    def shape(self, tag: str, place: Any) -> Shape:
        """The class of this name."""
        try:
            return super().shape(tag, place)
        except Unreadable as error:
            if not error.unknown or not _imported(tag):
                raise
        return super().shape(tag, place)

    def type(self, name: str) -> Any:
        """The type of this name."""
        try:
            return super().type(name)
        except Unreadable as error:
            if not error.unknown or not _imported(name):
                raise
        return super().type(name)


def _imported(name: str) -> bool:
    """Import the module of a name; False if the name has no module.

    Raises:
        CodeNotFound: the import failed.
    """
    module, colon, _ = name.partition(":")
    if not colon:
        return False
    try:
        importlib.import_module(module)
    except Exception as error:
        raise CodeNotFound(name, f"{type(error).__name__}: {error}") from error
    return True
