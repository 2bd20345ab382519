"""How each kind of event is laid out in a record: what goes into its body, what is its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

import msgspec

from handrail.codec.codec import UNKNOWN, Codec
from handrail.codec.unresolved import Unresolved
from handrail.errors import HandrailError, OutputNotSerializable
from handrail.model import events as ev
from handrail.model.dataclass import assembler, dataclass
from handrail.model.events import Event
from handrail.model.launch import Launch
from handrail.model.results import (
    Failure,
    OpenGate,
    RollbackError,
    StageResult,
    StepResult,
    Usage,
    ValidationRoundResult,
    WaitsFor,
)
from handrail.model.work import Task
from handrail.secrets.sealing import seal_text, unseal_text, variables_in
from handrail.typed.field_words import TEXTS

T = TypeVar("T")
Body: TypeAlias = dict[str, Any]
EncodedEvent: TypeAlias = tuple[Body, Any, bool]
"""The body of an event, the user's value, and whether the body has free text."""
Row: TypeAlias = tuple[str, int, float]
"""Run, number and time of an event: its first three fields."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one kind of event is written and read.

    ``write`` returns the body, the user's value (None for none), and whether the body has free text
    (an error, a reason). ``read`` may change the body that it gets. ``value`` names the value, for
    errors. ``own``: the value is an object of handrail's, or a dict by name,
    with the user's values inside; ``each``: it is a tuple of such. ``strict``: a value is refused
    if its classes could not be found again by their names alone.
    """

    kind: str
    write: Callable[[Any], EncodedEvent]
    read: Callable[[Row, str, Body, Any], Any]
    value: str = ""
    own: bool = False
    each: bool = False
    strict: bool = False


_ROW = ("run_id", "seq", "at")
_REQUIRED = object()


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else _REQUIRED


# -- fields that are no plain JSON -----------------------------------------------------------------


_FIELDS = {
    kind: {field.name: _default(field) for field in fields(kind)}
    for kind in (Usage, Launch, RollbackError, Failure, WaitsFor)
}
"""The fields, with defaults, of handrail's own records that a body may have."""


def _body_of(own: Any) -> Body:
    """Such a record as an object: its fields by name, without those at their default."""
    body: Body = {}
    for name, default in _FIELDS[type(own)].items():
        item = getattr(own, name)
        if item is not default and item != default:
            body[name] = _body_of(item) if type(item) is Usage else item
    return body


def _bodies_of(own: Iterable[Any]) -> list[Body]:
    return [_body_of(item) for item in own]


def _own(kind: type[T], body: Body) -> T:
    """The record of such an object; unknown fields are left out."""
    known = {name: body[name] for name in _FIELDS[cast("Any", kind)] if name in body}
    for name, restored in _OWN_RESTORING[cast("Any", kind)].items():
        if name in known:
            known[name] = restored(known[name])
    return kind(**known)


def _owns(kind: type[T], bodies: Iterable[Body]) -> tuple[T, ...]:
    return tuple(_own(kind, body) for body in bodies)


def _usage(body: Body | None) -> Usage | None:
    return None if body is None else _own(Usage, body)


def waits_from(bodies: Iterable[Body]) -> tuple[WaitsFor, ...]:
    """What a suspended run waits for, as its record says."""
    return _owns(WaitsFor, bodies)


def waits_recorded(body_text: str, codec: Codec) -> tuple[WaitsFor, ...]:
    """What a suspended run waits for, from the body of its ``RunSuspended``."""
    return waits_from(_body(body_text, codec, None).get("waits_for", ()))


def forked_from(body: Body) -> tuple[str, str | None] | None:
    """The run, and the place in it, that a run was forked from; from the body of its start."""
    return _forked_from(body.get("forked_from"))


def _forked_from(said: Any) -> tuple[str, str | None] | None:
    return None if said is None else (said[0], said[1])


def _found(pairs: Iterable[Any]) -> tuple[tuple[str, float], ...]:
    return tuple((str(task_id), float(priority)) for task_id, priority in pairs)


_Form: TypeAlias = tuple[Callable[[Any], Any] | None, Callable[[Any], Any]]
_FORMS: Mapping[str, _Form] = {
    "Usage | None": (_body_of, _usage),
    "Launch": (_body_of, partial(_own, Launch)),
    "Mapping[str, str]": (dict, dict),
    "Mapping[str, float]": (dict, dict),
    "tuple[str, ...]": (None, tuple),
    "tuple[int, ...]": (None, tuple),
    "tuple[str, str | None] | None": (list, _forked_from),
    "tuple[tuple[str, float], ...]": (None, _found),
    "tuple[Failure, ...]": (_bodies_of, partial(_owns, Failure)),
    "tuple[RollbackError, ...]": (_bodies_of, partial(_owns, RollbackError)),
    "tuple[WaitsFor, ...]": (_bodies_of, partial(_owns, WaitsFor)),
}
"""How a field of a type that is no plain JSON is written in a body, and read, by that type."""


_PLAIN = re.compile(
    r"(str|int|float|bool|Literal\[.*]|Rung|(Run|Step)Status|SteeringAction|TimerReason"
    r"|DenialSource)( \| None)?"
)


def _form(field: Field[Any]) -> _Form | None:
    return _FORMS.get(cast("str", field.type))


def _restoring(kind: Any, held: str = "") -> Mapping[str, Callable[[Any], Any]]:
    """How the fields of a class are read that are no plain JSON; ``held`` is written apart.

    Raises:
        TypeError: a field is of a type that has no form.
    """
    forms = {f.name: _form(f) for f in fields(kind) if f.name != held}
    for field in fields(kind):
        kind_of_field = cast("str", field.type)
        if forms.get(field.name, ()) is None and not _PLAIN.fullmatch(kind_of_field):
            raise TypeError(f"{kind.__name__}.{field.name}: a record has no form for {field.type}")
    return {name: form[1] for name, form in forms.items() if form is not None}


_OWN_RESTORING = {kind: _restoring(kind) for kind in _FIELDS}


def _writing(kept: Iterable[Field[Any]]) -> list[tuple[str, Any, Callable[[Any], Any] | None]]:
    """Name and default of these fields, and how each is written."""
    return [(f.name, _default(f), (_form(f) or (None,))[0]) for f in kept]


def _has_text(field: Field[Any]) -> bool:
    return field.name in TEXTS and "str" in cast("str", field.type)


# -- kinds by their fields -------------------------------------------------------------------------


def _by_fields(kind: type[Any]) -> Layout:
    """The layout of a kind whose body has its fields by their names, but for its value."""
    every = {f.name: f for f in fields(kind) if f.name not in _ROW}
    held = next((f for f in every.values() if f.metadata.get("handrail") == "value"), None)
    value = "" if held is None else held.name
    how: Mapping[Any, Any] = {} if held is None else held.metadata
    defaults = {name: _default(f) for name, f in every.items()}
    in_body = [f for f in every.values() if f.name not in {"path", value}]
    writing = _writing(in_body)
    items_of = attrgetter(*(f.name for f in in_body), *_ROW)  # all at once, for speed
    required = frozenset(name for name, default in defaults.items() if default is _REQUIRED)
    order = list(every)
    restoring = [(order.index(name), made) for name, made in _restoring(kind, value).items()]
    own, strict = "own" in how, "strict" in how
    several = own and held is not None and cast("str", held.type).startswith("tuple[")
    by_name = own and held is not None and cast("str", held.type).startswith("Mapping[")
    empty: Callable[..., Any] | None = None
    if several or by_name:
        empty = cast("Callable[..., Any]", tuple if several else dict)
    may_be_none = bool(value) and not own and defaults[value] is _REQUIRED
    has_path = "path" in every
    talks = any(map(_has_text, in_body))

    def write(event: Any) -> EncodedEvent:
        body: Body = {}
        for (name, default, written), item in zip(writing, items_of(event), strict=False):
            if item is not default and item != default:
                body[name] = item if written is None else written(item)
        kept: Any = getattr(event, value) if value and "composed" not in body else None
        if empty is not None:
            kept = empty(kept) or None
        return body, kept, talks

    def read(row: Row, path: str, body: Body, held: Any) -> Any:
        if has_path:
            body["path"] = path
        if held is not None or may_be_none:
            body[value] = held
        elif empty is not None:
            body[value] = empty(())
        if not required.issubset(body):
            raise KeyError(*required.difference(body))
        items = [body.get(name, default) for name, default in defaults.items()]
        for index, restored in restoring:
            items[index] = restored(items[index])
        return assembler(kind)(*row, *items)

    return Layout(kind.__name__, write, read, value, own, several, strict)


# -- kinds that are the end of something, with its result ------------------------------------------

# `path` and `name` are the event's and its last part; `output` is the record's value.
_RESULT_DEFAULTS = {field.name: _default(field) for field in fields(StepResult)}
_RESULT_BODY = {
    name: default
    for name, default in _RESULT_DEFAULTS.items()
    if name not in {"name", "path", "step_type", "status", "output", "duration_ms", "usage", "at"}
}
_RESULT_RESTORING = [
    (list(_RESULT_DEFAULTS).index(name), made)
    for name, made in _restoring(StepResult, "output").items()
]
_RESULT_WRITING = {
    name: written for name, _, written in _writing(fields(StepResult)) if name in _RESULT_BODY
}
_RESULT_USUALLY = (*_RESULT_BODY.values(), None)
_in_result_body = attrgetter(*_RESULT_BODY, "usage")


def _of_end(kind: type[Any]) -> Layout:
    """The layout of a kind with a result: its body has the fields of both."""
    beside = [f for f in fields(kind) if f.name not in {*_ROW, "path", "result"}]
    writing = _writing(beside)
    unusual = [field for field in writing if field[1] is not _REQUIRED]
    usually = tuple(default for _, default, _ in unusual)
    usual_of = attrgetter(*(name for name, _, _ in unusual))
    names = [f.name for f in beside]
    at_result = [f.name for f in fields(kind)].index("result") - len((*_ROW, "path"))
    required = frozenset(name for name, default, _ in writing if default is _REQUIRED)
    restoring = [
        (names.index(n), n, m) for n, m in _restoring(kind, "result").items() if n in names
    ]

    def write(event: Any) -> EncodedEvent:
        body = _result_body(event.result, event.path)
        for name in required:
            body[name] = getattr(event, name)
        items = usual_of(event)
        if items != usually:
            for (name, default, written), item in zip(unusual, items, strict=True):
                if item != default:
                    body[name] = item if written is None else written(item)
        return body, None if event.composed else event.result.output, _talks(body)

    def read(row: Row, path: str, body: Body, value: Any) -> Any:
        if not required.issubset(body):
            raise KeyError(*required.difference(body))
        items = [body.get(name, default) for name, default, _ in writing]
        for index, name, restored in restoring:
            if name in body:
                items[index] = restored(items[index])
        items.insert(at_result, _result(row[2], path, body, value))
        return assembler(kind)(*row, path, *items)

    return Layout(kind.__name__, write, read, "output", strict=True)


def _talks(body: Body) -> bool:
    return "error" in body or "traceback" in body or "handled" in body


def _result_body(result: StepResult[Any], path: str) -> Body:
    """The fields of a result but its output; its name and path only if they are not the event's."""
    body: Body = {"step_type": result.step_type, "status": result.status}
    if result.path != path:
        body["result_path"] = result.path
    if result.name != path.rpartition("/")[2]:
        body["name"] = result.name
    if result.duration_ms:
        body["duration_ms"] = result.duration_ms
    unusual = _in_result_body(result)
    if unusual == _RESULT_USUALLY:
        return body
    for (name, default), item in zip(_RESULT_BODY.items(), unusual, strict=False):
        if item != default:
            written = _RESULT_WRITING[name]
            body[name] = item if written is None else written(item)
    if result.usage is not None:
        body["usage"] = _body_of(result.usage)
    return body


def _result(at: float, path: str, body: Body, output: Any) -> StepResult[Any]:
    if "step_type" not in body or "status" not in body:
        raise KeyError(*{"step_type", "status"}.difference(body))
    body["output"] = output
    body["at"] = at
    body["path"] = body.get("result_path", path)
    if "name" not in body:
        body["name"] = path.rpartition("/")[2]
    items = [body.get(name, default) for name, default in _RESULT_DEFAULTS.items()]
    for index, restored in _RESULT_RESTORING:
        items[index] = restored(items[index])
    return cast("Callable[..., StepResult[Any]]", assembler(StepResult))(*items)


# -- every kind ------------------------------------------------------------------------------------

LAYOUTS: Mapping[type, Layout] = {
    kind: _of_end(kind) if kind in ev.ENDS else _by_fields(kind) for kind in get_args(Event)
}


def _owner(event: Any) -> str:
    """Whose value an event has, for errors."""
    match event:
        case ev.WorkflowStarted():
            return f"workflow {event.workflow_name!r}"
        case ev.WorkflowCompleted() | ev.RunSuspended():
            return f"run {event.run_id!r}"
        case ev.SignalReceived():
            return f"signal {event.name!r}"
        case ev.MemberCompleted():
            return f"member {event.path!r}"
        case _:
            return f"step {event.path!r}"


_OWN: Mapping[str, type] = {
    f"handrail:{cls.__name__}": cls
    for cls in (OpenGate, StageResult, StepResult, Task, Usage, ValidationRoundResult)
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def rebuilt(text: str, codec: Codec) -> Any:
    """The value of an ``own`` layout: an object of handrail's, a tuple of them, or a dict by name.

    A gate whose choices are of a class that is not imported is still a gate: its choices are
    ``Unresolved``, not the gate itself.
    """
    tree = _decode(text)
    if type(tree) is list:
        return tuple(rebuilt(_encode(item).decode(), codec) for item in cast("Iterable[Any]", tree))
    value = codec.load_or_keep(text)
    if not isinstance(value, Unresolved):
        return value
    return _built(tree, codec) if "$" in tree else {n: _built(v, codec) for n, v in tree.items()}


def _built(node: Any, codec: Codec) -> Any:
    tag: str = cast("dict[str, Any]", node).get("$", "") if type(node) is dict else ""
    if tag == "tuple":
        return tuple(_built(item, codec) for item in cast("Iterable[Any]", node["v"]))
    own = _OWN.get(tag)
    if own is None:
        return codec.load_or_keep(_encode(node).decode())
    names = [field.name for field in fields(own) if field.name in node]
    return own(**{name: _built(node[name], codec) for name in names})


# Events as rows of a journal, and back.
#
# A record has four parts, all text: the ``kind`` (the event's class), the ``path``, a ``body`` (a
# JSON object of the event's other fields; those at their default are left out), and the one
# ``value`` of the user's that an event may have, as the codec writes it. Number, time and run are
# the row's.
#
# The format is that of version 0.1: a field is never renamed and never gets another meaning. A
# reader ignores fields that it does not know, and takes the default for those it misses.


class Record(NamedTuple):
    """An event as a journal stores it, without its run, number and time."""

    kind: str
    path: str
    body: str
    value: str | None


class UnreadableRecord(HandrailError):
    """A record of a run cannot be read as an event by this version."""

    def __init__(self, run_id: str, seq: int, kind: str, why: str) -> None:
        super().__init__(run_id, seq, kind, why)
        self.run_id = run_id
        self.seq = seq
        self.kind = kind
        self.why = why

    def __str__(self) -> str:
        return f"run {self.run_id}: record {self.seq} ({self.kind}) cannot be read: {self.why}"


_TAG = '"$"'  # never in the text of a string: there, JSON escapes the quotes
_BY_KIND: Mapping[str, Layout] = {layout.kind: layout for layout in LAYOUTS.values()}


def to_record(event: Event, codec: Codec, secrets: Mapping[str, str] | None = None) -> Record:
    """The event as text, with the values of ``secrets`` written as references to their variables.

    Known token shapes are cut in any case; if that changed the value, the body says ``masked``, and
    the result of a step or member is read back as masked.

    An output, or another value that a later drive needs, must be of classes that are found by their
    names. Where the code declares them, the value can be given as ``Unresolved``, with its text.

    Raises:
        OutputNotSerializable: its value could not come back equal; the text names the step.
    """
    layout = LAYOUTS[type(event)]
    path: str = getattr(event, "path", "")
    body, value, talks = layout.write(event)
    text = None
    if value is not None:
        text, cut = seal_text(_dumped(event, value, layout, codec), secrets)
        if cut:
            body["masked"] = True
    return Record(layout.kind, path, _body_text(body, codec, secrets, talks=talks), text)


def from_record(  # noqa: PLR0917  # a row's parts in its order, then what reads them
    run_id: str,
    seq: int,
    at: float,
    record: Record,
    codec: Codec,
    secrets: Mapping[str, str] | None = None,
) -> Event:
    """The event that was recorded; see ``missing_secrets`` for variables that are not there.

    A value whose class cannot be found comes back as ``Unresolved``.

    Raises:
        UnreadableRecord: it is of a kind that a newer version wrote, or it is damaged.
    """
    kind, path, body_text, value_text = record
    layout = _BY_KIND.get(kind)
    if layout is None:
        why = (
            f"this version knows no events of kind {kind!r}; a newer version of handrail wrote it. "
            f"Use that version, or a newer one, for this run"
        )
        raise UnreadableRecord(run_id, seq, kind, why)
    try:
        body = _body(body_text, codec, secrets)
        value = None if value_text is None else _value(value_text, layout, codec, secrets)
        event: Event = layout.read((run_id, seq, at), path, body, value)
    except KeyError as error:
        lacking = ", ".join(map(repr, error.args))
        raise UnreadableRecord(run_id, seq, kind, f"it lacks {lacking}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UnreadableRecord(run_id, seq, kind, f"{type(error).__name__}: {error}") from error
    return event


def missing_secrets(record: Record, secrets: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The variables that a record refers to and that are not there, sorted.

    Where their values were, the event has ``${NAME}``.
    """
    names = variables_in(record.body) | variables_in(record.value or "")
    return tuple(sorted(names.difference(secrets or ())))


def _dumped(event: Event, value: Any, layout: Layout, codec: Codec) -> str:
    if type(value) is Unresolved:  # read where its class is not known, and written again as it was
        return value.text
    name = layout.value
    try:
        if not layout.each:
            if name == "inputs" and any(type(item) is Unresolved for item in value.values()):
                return _by_name(value, name, codec)
            return codec.dump(value, root=name, declared=Any if layout.strict else UNKNOWN)
        # One by one: each of them may have a class of its own with the same name.
        texts = [codec.dump(item, root=f"{name}[{index}]") for index, item in enumerate(value)]
        return f"[{','.join(texts)}]"
    except OutputNotSerializable as error:
        raise OutputNotSerializable(_owner(event), error.field, error.why) from error.__cause__


def _by_name(values: dict[str, Any], root: str, codec: Codec) -> str:
    """A JSON object of values, some of which are ``Unresolved`` and have their text already."""
    texts = [
        f"{_encode(name).decode()}:{codec.dump(item, root=f'{root}[{name!r}]', declared=Any)}"
        for name, item in values.items()
    ]
    return f"{{{','.join(texts)}}}"


def _body_text(body: Body, codec: Codec, secrets: Mapping[str, str] | None, *, talks: bool) -> str:
    """The body as JSON; the codec writes what JSON cannot express (lone surrogates, NaN)."""
    try:
        text = _encode(body).decode()
    except (TypeError, ValueError):
        text = codec.dump(_plain(body))
    else:
        if ":null" in text or _TAG in text:
            text = codec.dump(_plain(body))
    return seal_text(text, secrets, record=True)[0] if talks else text


def _plain(item: Any) -> Any:
    """The item in exact builtins, with lists for tuples, as a body reads back."""
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, dict):
        items = cast("dict[str, Any]", item).items()
        return {_plain(key): _plain(value) for key, value in items}
    if isinstance(item, (list, tuple)):
        return [_plain(value) for value in cast("Iterable[Any]", item)]
    return item


def _body(text: str, codec: Codec, secrets: Mapping[str, str] | None) -> Body:
    body: Body = _decode(text) if _TAG not in text else _tagged(text, codec, secrets)
    return body


def _tagged(text: str, codec: Codec, secrets: Mapping[str, str] | None) -> Body:
    text = unseal_text(text, secrets)
    body: Body = codec.load_or_keep(text) if _TAG in text else _decode(text)
    return body


def _value(text: str, layout: Layout, codec: Codec, secrets: Mapping[str, str] | None) -> Any:
    text = unseal_text(text, secrets)
    return rebuilt(text, codec) if layout.own else codec.load_or_keep(text)


# A faster ``from_record``, for many records of one run.
#
# Nearly all records of a long run say that a step started, or that it succeeded at the first
# attempt. Structs decode their bodies, and their events are put together by hand. A record that
# does not fit goes to ``from_record``, which knows all kinds, and says what is wrong.

Read: TypeAlias = Callable[[int, float, bytes, bytes, bytes, bytes | None], ev.Event]
"""Makes an event from its number, time, kind, path, body and value, as they are stored."""

_TAG_BYTES = b'"$"'


# A tagged value in a body is an object where these have text or numbers, so it does not fit.


class _Start(msgspec.Struct):
    """The body of ``StepStarted``."""

    step_type: str
    fingerprint: str = ""
    verdict: bool | None = None
    signal: str = ""
    index: int = 0
    rollback: bool = False
    once: bool = False
    cleanup: bool = False
    agents_may_answer: bool = False


class _PlainEnd(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a ``StepCompleted`` with no other fields."""

    step_type: str
    status: Literal["succeeded"]
    duration_ms: int | float = 0.0


_start = msgspec.json.Decoder(_Start).decode
_plain_end = msgspec.json.Decoder(_PlainEnd).decode
_any = msgspec.json.Decoder().decode


def reader(run_id: str, codec: Codec, secrets: Mapping[str, str] | None) -> Read:
    """A function that reads the records of a run.

    Raises:
        UnreadableRecord: on a call, as ``from_record``.
    """
    new_start: Callable[..., ev.Event] = assembler(ev.StepStarted)
    new_end: Callable[..., ev.Event] = assembler(ev.StepCompleted)
    new_result: Callable[..., StepResult[Any]] = assembler(StepResult)

    def read(  # noqa: PLR0917  # the columns, in their order
        seq: int, at: float, kind: bytes, path: bytes, body: bytes, value: bytes | None
    ) -> ev.Event:
        try:
            if kind == b"StepStarted" and value is None:
                start = _start(body)
                return new_start(
                    run_id, seq, at, path.decode(), start.step_type, start.fingerprint,
                    start.verdict, start.signal, start.index, start.rollback, start.once, None,
                    start.cleanup, start.agents_may_answer,
                )  # fmt: skip
            if kind == b"StepCompleted" and (value is None or _TAG_BYTES not in value):
                end = _plain_end(body)
                where = path.decode()
                result = new_result(
                    where.rpartition("/")[2] if "/" in where else where,
                    where, end.step_type, "succeeded", None if value is None else _any(value),
                    None, None, (), None, end.duration_ms, 1, False, False, False, None,  # noqa: FBT003
                    (), at, None,
                )  # fmt: skip
                return new_end(run_id, seq, at, where, result, "", 0, (), None, "")
        except msgspec.MsgspecError:
            pass  # it has other fields, or is damaged
        text = None if value is None else value.decode()
        record = Record(kind.decode(), path.decode(), body.decode(), text)
        return from_record(run_id, seq, at, record, codec, secrets)

    return read
