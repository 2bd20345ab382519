"""Many records of one run, read one after the other: what ``from_record`` does, made for speed.

Nearly all records of a long run say that a step started, or that it succeeded at the first attempt.
Their bodies are decoded by structs, and their events put together by hand. Whatever does not fit in
there goes to ``from_record``, which knows all kinds, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from handrail.codec.codec import Codec
from handrail.model import events as ev
from handrail.model.assemble import assembler
from handrail.model.records import Record, from_record
from handrail.model.results import StepResult

Read: TypeAlias = Callable[[int, float, bytes, bytes, bytes, bytes | None], ev.Event]
"""Number, time, kind, path, body and value, as they are stored, to the event."""

_TAG = b'"$"'


# Something tagged in a body is an object where these have text or numbers, so it does not fit.


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


class _PlainEnd(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a ``StepCompleted`` that has nothing else to say."""

    step_type: str
    status: Literal["succeeded"]
    duration_ms: int | float = 0.0


_start = msgspec.json.Decoder(_Start).decode
_plain_end = msgspec.json.Decoder(_PlainEnd).decode
_any = msgspec.json.Decoder().decode


def reader(run_id: str, codec: Codec, secrets: Mapping[str, str] | None) -> Read:
    """What reads the records of a run.

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
                    start.cleanup,
                )  # fmt: skip
            if kind == b"StepCompleted" and (value is None or _TAG not in value):
                end = _plain_end(body)
                where = path.decode()
                result = new_result(
                    where.rpartition("/")[2] if "/" in where else where,
                    where, end.step_type, "succeeded", None if value is None else _any(value),
                    None, None, (), None, end.duration_ms, 1, False, False, False, None,  # noqa: FBT003
                )  # fmt: skip
                return new_end(run_id, seq, at, where, result, "", 0, ())
        except msgspec.MsgspecError:
            pass  # it has more to say, or it is damaged
        text = None if value is None else value.decode()
        record = Record(kind.decode(), path.decode(), body.decode(), text)
        return from_record(run_id, seq, at, record, codec, secrets)

    return read
