"""Attempts and rollbacks as data: what another process needs to perform them.

An attempt is written as one JSON object: the path and number of the attempt, the time that it has
left, and its verb part by part. Functions, agents and classes are in it by their names, values as
the codec writes them (``codec.portable``). An agent's context, which only the workflow's code can
build, is built before.

A part that is neither data nor has a name is ``NotPortable``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias, cast

import msgspec

from handrail.codec.codec import Codec
from handrail.codec.portable import PortableCodec
from handrail.core import commands as cmd
from handrail.core.attempt_ends import time_bound
from handrail.core.commands import VisibleResults
from handrail.core.conductor import ONE_MACHINE
from handrail.errors import NotPortable, OutputNotSerializable
from handrail.model.launch import FIRST
from handrail.model.policy import Retry
from handrail.steps.table import VERBS
from handrail.steps.verbs import Leaf, Modifiers, Rollback, Step, Verb, take

AttemptParts: TypeAlias = dict[str, Any]


class PortableFormat:
    """Writes attempts and rollbacks for another process, and reads them. Mutable: learns names.

    ``home`` is the workflow's module: it looks there first for the objects that steps name.
    """

    def __init__(self, codec: Codec, home: str = "") -> None:
        self._codec = PortableCodec(codec, home)

    # -- writing --------------------------------------------------------------------------------

    def write_attempt(
        self, command: cmd.Perform, now: float, context: Mapping[str, Any] | None = None
    ) -> str:
        """An attempt as JSON text; ``context``: what the builder of an agent's context returned.

        Raises:
            NotPortable: a part of the step is neither data nor has a name.
        """
        path, step = command.path, command.step
        parts: AttemptParts = {"path": path, "step": step.name, "attempt": command.attempt}
        if command.wanted is not None and command.wanted.names:
            raise NotPortable(path, "claim", ONE_MACHINE)
        left_s, _ = time_bound(command, now)
        if left_s < math.inf:
            parts["left_s"] = max(0.0, left_s)
        if command.interrupted:
            parts["interrupted"] = True
        if command.launch is not FIRST:
            parts["launch"] = self._part(command.launch, path, "launch")
        if command.used is not None:
            parts["used"] = self._part(command.used, path, "usage")
        retry = step.modifiers.retry
        if retry is not None and retry.on is not None:
            parts["retry_on"] = self._part(retry.on, path, "retry(on=)")
        if step.modifiers.inline:
            parts["inline"] = True
        parts["verb"] = self._verb(step.verb, path, context)
        if isinstance(step.verb, Leaf) and step.verb.sees_results() and command.view is not None:
            parts["view"] = self._view(command.view)
        return msgspec.json.encode(parts).decode()

    def write_rollback(self, command: cmd.Undo) -> str:
        """A rollback as JSON text.

        Raises:
            NotPortable: its function has no name, or a value in its view is no data.
        """
        path, rollback = command.path, command.rollback
        parts: AttemptParts = {
            "path": path,
            "undo": self._part(rollback.action, path, "rollback"),
            "left_s": rollback.timeout_s,
            "view": self._view(command.view),
        }
        return msgspec.json.encode(parts).decode()

    def _verb(self, verb: Verb, path: str, context: Mapping[str, Any] | None) -> AttemptParts:
        """The kind of a verb, and its fields that are not as by default."""
        if not isinstance(verb, Leaf) or not verb.travels:
            raise NotPortable(path, f"verb {verb.kind!r}", "no attempt is made at it")
        parts: AttemptParts = {"kind": verb.kind}
        for field in fields(cast("Any", verb)):
            value: Any = getattr(verb, field.name)
            if field.name == "context" and context is not None:
                value = context
            if value is not field.default:
                parts[field.name] = self._part(value, path, field.name)
        return parts

    def _view(self, view: cmd.View) -> AttemptParts:
        parts: AttemptParts = {"inputs": self._part(dict(view.inputs), view.path, "inputs")}
        results = list(view.results.values())
        if results:
            parts["results"] = self._part(results, view.path, "results")
        if view.validation is not None:
            parts["validation"] = self._part(view.validation, view.path, "validation")
        return parts

    def _part(self, value: Any, path: str, name: str) -> msgspec.Raw:
        try:
            return msgspec.Raw(self._codec.dump(value, where=path, root=name).encode())
        except OutputNotSerializable as error:
            raise NotPortable(path, error.field, error.why) from None

    # -- reading --------------------------------------------------------------------------------

    def read_attempt(self, text: str | bytes, started_at: float) -> cmd.Perform:
        """The attempt that a text describes, begun at this time.

        Raises:
            CodeNotFound: an object that it names is not here.
        """
        parts: Mapping[str, msgspec.Raw] = _decode(text)
        path, name, attempt = (_plain(parts[part]) for part in ("path", "step", "attempt"))
        on = self._read(parts, "retry_on")
        step: Step[Any] = Step(
            name,
            self._read_verb(_decode(parts["verb"])),
            Modifiers(retry=None if on is None else Retry(1, on=on), inline="inline" in parts),
        )
        take(step)
        return cmd.Perform(
            path,
            step,
            attempt,
            started_at,
            self._read_view(parts, path),
            "interrupted" in parts,
            self._read(parts, "launch") or FIRST,
            used=self._read(parts, "used"),
        )

    def read_rollback(self, text: str | bytes) -> cmd.Undo:
        """The rollback that a text describes.

        Raises:
            CodeNotFound: an object that it names is not here.
        """
        parts: Mapping[str, msgspec.Raw] = _decode(text)
        path = _plain(parts["path"])
        view = self._read_view(parts, path)
        assert view is not None
        return cmd.Undo(path, Rollback(self._read(parts, "undo"), _plain(parts["left_s"])), view)

    def _read_verb(self, parts: Mapping[str, msgspec.Raw]) -> Verb:
        verb: Any = VERBS[_plain(parts["kind"])]
        names = [field.name for field in fields(verb) if field.name in parts]
        return cast("Verb", verb(**{name: self._read(parts, name) for name in names}))

    def _read_view(self, parts: Mapping[str, msgspec.Raw], path: str) -> cmd.View | None:
        if "view" not in parts:
            return cmd.View(path, {}, VisibleResults({}, (), path))
        view: Mapping[str, msgspec.Raw] = _decode(parts["view"])
        results = {result.path: result for result in self._read(view, "results") or ()}
        shown = VisibleResults(results, (), path)
        return cmd.View(path, self._read(view, "inputs"), shown, self._read(view, "validation"))

    def _read(self, parts: Mapping[str, msgspec.Raw], name: str) -> Any:
        raw = parts.get(name)
        return None if raw is None else self._codec.load(bytes(raw).decode())


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def left_s(text: str | bytes) -> float | None:
    """The seconds that the attempt or rollback in a text has left; None for no bound."""
    raw = _decode(text).get("left_s")
    return None if raw is None else _plain(raw)
