"""Attempts and rollbacks as data: what another process needs to perform them.

An attempt is written as one JSON object: the path and number of the attempt, the time that it has
left, and its verb part by part. Functions, agents and classes are in it by their names, values as
the codec writes them (``codec.portable``). An agent's context, which only the workflow's code can
build, is built before.

A part that is neither data nor has a name is ``NotPortable``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

import msgspec

from handrail.codec.codec import Codec
from handrail.codec.portable import PortableCodec
from handrail.core import commands as cmd
from handrail.core.attempt_ends import time_bound
from handrail.core.conductor import ONE_MACHINE
from handrail.core.visible import VisibleResults
from handrail.errors import NotPortable, OutputNotSerializable
from handrail.model.launch import FIRST
from handrail.model.policy import Retry
from handrail.steps.leaves import Launching
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
            parts["launch"] = self.part(command.launch, path, "launch")
        if command.used is not None:
            parts["used"] = self.part(command.used, path, "usage")
        retry = step.modifiers.retry
        if retry is not None and retry.on is not None:
            parts["retry_on"] = self.part(retry.on, path, "retry(on=)")
        if step.modifiers.inline:
            parts["inline"] = True
        parts.update(self._verb(step.verb, path, context))
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
            "undo": self.part(rollback.action, path, "rollback"),
            "left_s": rollback.timeout_s,
            "view": self._view(command.view),
        }
        return msgspec.json.encode(parts).decode()

    def _verb(self, verb: Verb, path: str, context: Mapping[str, Any] | None) -> AttemptParts:
        if not isinstance(verb, Leaf) or not verb.travels:
            raise NotPortable(path, f"verb {verb.kind!r}", "no attempt is made at it")
        if isinstance(verb, Launching) and context is not None:
            made: Any = verb
            verb = cast("Leaf", replace(made, context=context))
        return verb.parts(_Writer(self, path))

    def _view(self, view: cmd.View) -> AttemptParts:
        found: AttemptParts = {"inputs": self.part(dict(view.inputs), view.path, "inputs")}
        results = list(view.results.values())
        if results:
            found["results"] = self.part(results, view.path, "results")
        if view.validation is not None:
            found["validation"] = self.part(view.validation, view.path, "validation")
        return found

    def part(self, value: Any, path: str, name: str) -> msgspec.Raw:
        """A value as text."""
        return self._raw(self._codec.dump, value, path, name)

    def thing(self, value: Any, path: str, name: str) -> msgspec.Raw:
        """An agent or a backend, by its name."""
        return self._raw(self._codec.dump_object, value, path, name)

    def _raw(self, dump: Callable[..., str], value: Any, path: str, name: str) -> msgspec.Raw:
        try:
            return msgspec.Raw(dump(value, where=path, root=name).encode())
        except OutputNotSerializable as error:
            raise NotPortable(path, error.field, error.why) from None

    # -- reading --------------------------------------------------------------------------------

    def read_attempt(self, text: str | bytes, started_at: float) -> cmd.Perform:
        """The attempt that a text describes, begun at this time.

        Raises:
            CodeNotFound: an object that it names is not here.
        """
        parts: Mapping[str, msgspec.Raw] = _decode(text)
        path, name, attempt = (_plain(parts[one]) for one in ("path", "step", "attempt"))
        on = self.read(parts, "retry_on")
        step: Step[Any] = Step(
            name,
            _read_verb(_Reader(self, parts)),
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
            self.read(parts, "launch") or FIRST,
            used=self.read(parts, "used"),
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
        return cmd.Undo(path, Rollback(self.read(parts, "undo"), _plain(parts["left_s"])), view)

    def _read_view(self, parts: Mapping[str, msgspec.Raw], path: str) -> cmd.View | None:
        if "view" not in parts:
            return cmd.View(path, {}, VisibleResults({}, (), path))
        view: Mapping[str, msgspec.Raw] = _decode(parts["view"])
        results = {one.path: one for one in self.read(view, "results") or ()}
        shown = VisibleResults(results, (), path)
        return cmd.View(path, self.read(view, "inputs"), shown, self.read(view, "validation"))

    def read(self, parts: Mapping[str, msgspec.Raw], name: str) -> Any:
        """The value under a name; None if there is none."""
        raw = parts.get(name)
        return None if raw is None else self._codec.load(bytes(raw).decode())


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def left_s(text: str | bytes) -> float | None:
    """The seconds that the attempt or rollback in a text has left; None for no bound."""
    raw = _decode(text).get("left_s")
    return None if raw is None else _plain(raw)


def builds_context(command: cmd.Perform) -> bool:
    """True for a step whose context a function builds before the step is performed."""
    verb = command.step.verb
    return isinstance(verb, Launching) and verb.builds_context


class _Writer:
    """Writes the parts of one verb."""

    def __init__(self, portable_format: PortableFormat, path: str) -> None:
        self._format = portable_format
        self._path = path

    def part(self, value: Any, name: str) -> msgspec.Raw:
        return self._format.part(value, self._path, name)

    def thing(self, value: Any, name: str) -> msgspec.Raw:
        return self._format.thing(value, self._path, name)


class _Reader:
    """Reads the parts of one verb."""

    def __init__(self, portable_format: PortableFormat, parts: Mapping[str, msgspec.Raw]) -> None:
        self._format = portable_format
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def value(self, name: str) -> Any:
        return self._format.read(self._parts, name)

    def plain(self, name: str) -> Any:
        return _plain(self._parts[name]) if name in self._parts else None


def _read_verb(parts: _Reader) -> Leaf:
    for verb in VERBS.values():
        if issubclass(verb, Leaf) and (verb.mark or verb.kind) in parts:
            return verb.from_parts(parts)
    raise AssertionError("no verb is known by these parts")
