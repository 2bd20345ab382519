"""Events as rows of a journal, and back.

A record has four parts, all text: the ``kind`` (the event's class), the ``path``, a ``body`` (a
JSON object of the event's other fields; those at their default are left out), and the one ``value``
of the user's that an event may have, as the codec writes it. Number, time and run are the row's.

What is written once is read for ever, so a reader ignores fields that it does not know and takes
the default for those it misses; a field is never renamed and never gets another meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from handrail.codec.codec import UNKNOWN, Codec
from handrail.codec.unresolved import Unresolved
from handrail.errors import HandrailError, OutputNotSerializable
from handrail.model.events import Event
from handrail.model.layouts import LAYOUTS, Body, Layout
from handrail.model.rebuild import rebuilt
from handrail.secrets.sealing import sealed, unsealed, variables_in


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


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_TAG = '"$"'  # never in the text of a string: there, JSON escapes the quotes
_BY_KIND: Mapping[str, Layout] = {layout.kind: layout for layout in LAYOUTS.values()}


def to_record(event: Event, codec: Codec, secrets: Mapping[str, str] | None = None) -> Record:
    """The event as text, with the values of ``secrets`` written as references to their variables.

    Known token shapes are cut in any case; if that changed the value, the body says ``masked``, and
    the result of a step or member comes back so.

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
        text, cut = sealed(_dumped(event, value, layout, codec), secrets)
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
        body = _decode(body_text) if _TAG not in body_text else _tagged(body_text, codec, secrets)
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
            if name == "inputs" and any(type(one) is Unresolved for one in value.values()):
                return _by_name(value, name, codec)
            return codec.dump(value, root=name, declared=Any if layout.strict else UNKNOWN)
        # One by one: what they hold may be of classes of one name, made anew for each of them.
        texts = [codec.dump(item, root=f"{name}[{index}]") for index, item in enumerate(value)]
        return f"[{','.join(texts)}]"
    except OutputNotSerializable as error:
        raise OutputNotSerializable(layout.of(event), error.field, error.why) from error.__cause__


def _by_name(values: dict[str, Any], root: str, codec: Codec) -> str:
    """An object some of whose items are there as text already."""
    texts = [
        f"{_encode(name).decode()}:{codec.dump(item, root=f'{root}[{name!r}]', declared=Any)}"
        for name, item in values.items()
    ]
    return f"{{{','.join(texts)}}}"


def _body_text(body: Body, codec: Codec, secrets: Mapping[str, str] | None, *, talks: bool) -> str:
    """The body as JSON; what JSON cannot say (lone surrogates, NaN) is left to the codec."""
    try:
        text = _encode(body).decode()
    except (TypeError, ValueError):
        text = codec.dump(_plain(body))
    else:
        if ":null" in text or _TAG in text:
            text = codec.dump(_plain(body))
    return sealed(text, secrets, record=True)[0] if talks else text


def _plain(item: Any) -> Any:
    """The same of exact builtins, and with lists for tuples: that is how a body is read."""
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, dict):
        items = cast("dict[str, Any]", item).items()
        return {_plain(key): _plain(value) for key, value in items}
    if isinstance(item, (list, tuple)):
        return [_plain(value) for value in cast("Iterable[Any]", item)]
    return item


def _tagged(text: str, codec: Codec, secrets: Mapping[str, str] | None) -> Body:
    text = unsealed(text, secrets)
    body: Body = codec.load_or_keep(text) if _TAG in text else _decode(text)
    return body


def _value(text: str, layout: Layout, codec: Codec, secrets: Mapping[str, str] | None) -> Any:
    text = unsealed(text, secrets)
    return rebuilt(text, codec) if layout.own else codec.load_or_keep(text)
