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
from typing import Any, TypeAlias

import attrs
import msgspec

from handrail.codec.codec import Codec
from handrail.codec.portable import PortableCodec
from handrail.core import commands as cmd
from handrail.core.attempt_ends import time_bound
from handrail.core.conductor import ONE_MACHINE
from handrail.core.visible import VisibleResults
from handrail.engine.stage_calls import takes_one
from handrail.errors import NotPortable, OutputNotSerializable
from handrail.model.agent_options import NO_SETTINGS
from handrail.model.launch import FIRST
from handrail.model.policy import Retry
from handrail.steps.verbs import (
    AgentCall,
    Generation,
    Modifiers,
    PythonCall,
    Rollback,
    ShellCommand,
    Stage,
    StageCheck,
    Step,
    take,
)

AttemptParts: TypeAlias = dict[str, Any]
_EXPLICIT = "explicit"


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
        parts.update(self._verb(step.verb, path, context))
        if _needs_view(step.verb) and command.view is not None:
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

    def _verb(self, verb: Any, path: str, context: Mapping[str, Any] | None) -> AttemptParts:
        match verb:
            case PythonCall():
                return self._of(path, verb, call="action", args="args", kwargs="kwargs")
            case ShellCommand():
                names = ("argv", "cwd", "env", "stdin", "parse", "sandbox", "inherit_env")
                parts = self._of(path, verb, **{one: one for one in names})
                return parts if verb.check else {**parts, "check": False}
            case AgentCall() | Generation():
                return self._agent(verb, path, context)
            case StageCheck():
                stage = verb.stage
                named = {"stage": stage.name, "check": self._performer(stage.check, path)}
                set_ = self._of(path, stage, sandbox="sandbox", inherit_env="inherit_env")
                named |= set_
                return named if stage.timeout is None else {**named, "timeout": stage.timeout}
            case _:
                raise NotPortable(path, f"verb {verb.kind!r}", "no attempt is made at it")

    def _of(self, path: str, verb: Any, **fields: str) -> AttemptParts:
        """The fields of a verb that are set, by their names in the text."""
        found = {name: (field, getattr(verb, field)) for name, field in fields.items()}
        return {
            name: self._part(value, path, field)
            for name, (field, value) in found.items()
            if value is not None and value != ()
        }

    def _agent(
        self, verb: AgentCall | Generation, path: str, context: Mapping[str, Any] | None
    ) -> AttemptParts:
        is_agent = isinstance(verb, AgentCall)
        performer: Any = verb.agent if isinstance(verb, AgentCall) else verb.generator
        kind = "agent" if is_agent else "generate"
        parts: AttemptParts = {
            kind: self._object(performer, path, "agent" if is_agent else "generator")
        }
        given = verb.context if context is None else context
        parts["context"] = self._part(given, path, "context")
        if verb.settings.backend is not None:
            parts["backend"] = self._object(verb.settings.backend, path, "backend")
        if (judge := verb.settings.check) is not None:
            parts["check"] = self._performer(judge, path)
        rest = attrs.evolve(verb.settings, backend=None, check=None)
        if rest != NO_SETTINGS:
            parts["settings"] = self._part(rest, path, "settings")
        if isinstance(verb, AgentCall) and verb.answers:
            parts["answers"] = True
        return parts

    def _view(self, view: cmd.View) -> AttemptParts:
        found: AttemptParts = {"inputs": self._part(dict(view.inputs), view.path, "inputs")}
        results = list(view.results.values())
        if results:
            found["results"] = self._part(results, view.path, "results")
        if view.validation is not None:
            found["validation"] = self._part(view.validation, view.path, "validation")
        return found

    def _part(self, value: Any, path: str, name: str) -> msgspec.Raw:
        return self._raw(self._codec.dump, value, path, name)

    def _performer(self, check: Any, path: str) -> msgspec.Raw:
        dump = self._object if callable(getattr(check, "run", None)) else self._part
        return dump(check, path, "check")

    def _object(self, value: Any, path: str, name: str) -> msgspec.Raw:
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
        on = self._read(parts, "retry_on")
        step: Step[Any] = Step(
            name,
            self._read_verb(parts),
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

    def _read_verb(self, parts: Mapping[str, msgspec.Raw]) -> Any:
        if "call" in parts:
            args = self._read(parts, "args") or ()
            return PythonCall(self._read(parts, "call"), args, self._read(parts, "kwargs"))
        if "argv" in parts:
            names = ("argv", "cwd", "env", "stdin")
            argv, cwd, env, stdin = (self._read(parts, one) for one in names)
            parse, bounds = self._read(parts, "parse"), self._bounds(parts)
            return ShellCommand(argv, cwd, env, stdin, "check" not in parts, parse, *bounds)
        if "stage" in parts:
            timeout = None if "timeout" not in parts else _plain(parts["timeout"])
            name, check = _plain(parts["stage"]), self._read(parts, "check")
            return StageCheck(Stage(name, check, timeout, *self._bounds(parts)))
        return self._read_agent(parts)

    def _bounds(self, parts: Mapping[str, msgspec.Raw]) -> tuple[Any, Any]:
        return self._read(parts, "sandbox"), self._read(parts, "inherit_env")

    def _read_agent(self, parts: Mapping[str, msgspec.Raw]) -> AgentCall | Generation:
        settings = self._read(parts, "settings") or NO_SETTINGS
        if "backend" in parts:
            settings = attrs.evolve(settings, backend=self._read(parts, "backend"))
        if "check" in parts:
            settings = attrs.evolve(settings, check=self._read(parts, "check"))
        context = self._read(parts, "context")
        if "generate" in parts:
            return Generation(self._read(parts, "generate"), context, settings)
        return AgentCall(self._read(parts, "agent"), context, settings, "answers" in parts)

    def _read_view(self, parts: Mapping[str, msgspec.Raw], path: str) -> cmd.View | None:
        if "view" not in parts:
            return cmd.View(path, {}, VisibleResults({}, (), path))
        view: Mapping[str, msgspec.Raw] = _decode(parts["view"])
        results = {one.path: one for one in self._read(view, "results") or ()}
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


def _needs_view(verb: Any) -> bool:
    """True if a stage's check, or an agent, may read the results of earlier steps."""
    match verb:
        case StageCheck(stage=stage):
            return callable(stage.check) and takes_one(stage.check)
        case AgentCall(agent=agent) | Generation(generator=agent):
            return _is_shown_results(agent)
        case _:
            return False


def _is_shown_results(agent: Any) -> bool:
    """False for an agent whose prompt is a text that uses its explicit context alone."""
    prompt = getattr(agent, "prompt", None)
    mode = getattr(agent, "context_mode", None)
    return not (isinstance(prompt, str) and mode in (None, _EXPLICIT) and "ctx" not in prompt)


def builds_context(command: cmd.Perform) -> bool:
    """True for a step whose context a function builds before the step is performed."""
    verb = command.step.verb
    if not isinstance(verb, (AgentCall, Generation)):
        return False
    return callable(verb.context) and not isinstance(verb.context, Mapping)
