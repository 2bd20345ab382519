"""The ends of attempts and rollbacks that a worker performed: events to data, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from handrail.codec.codec import Codec
from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.errors import OutputNotSerializable
from handrail.model import events as ev
from handrail.model.launch import Fault
from handrail.model.results import Usage
from handrail.record.outputs import declared_output, recordable
from handrail.secrets.sealing import seal_text, unseal_text
from handrail.secrets.values import SecretValues
from handrail.steps.verbs import Step
from handrail.temporal.wire import End, Row, event_of, row_of, text_of


class EndCodec:
    """Encodes a run's attempt ends on the worker, and decodes them where the run is driven."""

    def __init__(self, run_id: str, codec: Codec, secrets: SecretValues) -> None:
        self.run_id = run_id
        self._codec = codec
        self._secrets = secrets

    # -- encoding, on the worker ----------------------------------------------------------------

    def encode(
        self, end: ev.StepCompleted | ev.AttemptFailed | cmd.LaunchFailed, step: Step[Any]
    ) -> End:
        """An attempt's end as data; an output that cannot be recorded becomes a failure."""
        if isinstance(end, cmd.LaunchFailed):
            fault = self._codec.dump(end.fault, where=end.path, root="fault")
            sealed = msgspec.Raw(seal_text(fault, self._secrets)[0].encode())
            return End(self.row(end.failed), sealed, end.took_s)
        try:
            return End(self.row(end))
        except OutputNotSerializable as error:
            return End(self.row(_with_text(end, step, self._codec, error)))

    def row(self, event: ev.Event) -> Row:
        """The row of an event that has no number yet.

        Raises:
            OutputNotSerializable: a value in the event cannot be recorded.
        """
        return row_of(event, self._codec, self._secrets)

    def encode_broken_off(self, known: cmd.BrokenOff | None) -> dict[str, Any] | None:
        """A stopped launch's usage, session and duration, as JSON data."""
        if known is None:
            return None
        found = msgspec.structs.asdict(known)
        return {**found, "own": self._usage(known.own), "total": self._usage(known.total)}

    def _usage(self, usage: Usage | None) -> msgspec.Raw | None:
        if usage is None:
            return None
        return msgspec.Raw(self._codec.dump(usage, where="usage").encode())

    def event(self, row: Row, step: Step[Any] | None = None) -> ev.Event:
        """The event of a row; its output is decoded as the type that ``step`` declares."""
        event = event_of(row, self.run_id, self._codec, self._secrets)
        if isinstance(event, ev.StepCompleted) and type(event.result.output) is Unresolved:
            declared = Any if step is None else declared_output(step)
            output = self._codec.load(event.result.output.text, declared)
            event = dataclasses.replace(
                event, result=dataclasses.replace(event.result, output=output)
            )
        return event

    def launch_failed(self, path: str, end: End, at: float) -> cmd.LaunchFailed:
        """The report that an end with a ``fault`` makes to the core."""
        assert end.fault is not None
        assert end.event is not None
        fault: Fault = self._codec.load(unseal_text(text_of(end.fault), self._secrets), Fault)
        failed = self.event(end.event)
        assert isinstance(failed, ev.AttemptFailed)
        return cmd.LaunchFailed(path, fault, failed, end.took_s, at)

    def decode_broken_off(self, end: End) -> cmd.BrokenOff:
        """A stopped launch's usage, session and duration, from its end."""
        if end.launch is None:
            return cmd.NOTHING_KNOWN
        own, total = (
            None if end.launch[name] is None else self._codec.load(text_of(end.launch[name]), Usage)
            for name in ("own", "total")
        )
        known: dict[str, Any] = {**end.launch, "own": own, "total": total}
        return cmd.BrokenOff(**known)


def _with_text(
    end: ev.StepCompleted | ev.AttemptFailed,
    step: Step[Any],
    codec: Codec,
    error: OutputNotSerializable,
) -> ev.Event:
    """The end with its output as text, if the step's declared type can read that text back.

    Otherwise the failure that says so. A failed attempt just loses its output.
    """
    if isinstance(end, ev.AttemptFailed):
        return dataclasses.replace(end, output=None)
    try:
        text = recordable(end.result.output, codec, lambda: (declared_output(step),), error.where)
    except OutputNotSerializable as still:
        from handrail.core.value_texts import failure_for_unserializable

        return failure_for_unserializable(end, still, attempts_over=False)
    output = Unresolved(text, "")
    return dataclasses.replace(end, result=dataclasses.replace(end.result, output=output))
