"""The verbs that wait: for a person's answer, a signal, or a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, cast

from handrail.model.dataclass import dataclass
from handrail.model.results import Choice
from handrail.steps.identity import Identity, type_text
from handrail.steps.verbs import Verb


@dataclass(frozen=True, slots=True)
class Question(Verb):
    """Ask a person."""

    kind: ClassVar[str] = "ask"
    reported_later: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    question: str
    choices: tuple[Any, ...] = ()
    type: Any = str
    default: Any = None
    has_default: bool = False
    timeout_s: float | None = None
    values: tuple[Any, ...] = ()
    """What each choice stands for; without them a choice stands for itself."""
    agents_may_answer: bool = False

    def fingerprint(self, identity: Identity) -> str:
        offered = identity(list(self.choices))
        offered += identity(list(self.values)) if self.values else ""
        return f"ask {identity(self.question)} {offered} {type_text(self.type)}"

    def output_type(self) -> Any:
        if not self.choices:
            return self.type
        first: object = (self.values or self.choices)[0]
        return type(first)

    def value_of(self, choice: Any) -> Any:
        """The output that a choice, with its text if it has one, or a default, stands for."""
        if not self.values:
            return choice
        told = cast("dict[Any, str]", choice if type(choice) is dict else {choice: ""})
        ((label, text),) = told.items()
        found = self.values[self.choices.index(label)]
        return replace(cast("Any", found), text=text) if isinstance(found, Choice) else found


@dataclass(frozen=True, slots=True)
class SignalWait(Verb):
    """Wait for a signal's payload."""

    kind: ClassVar[str] = "wait_for"
    waits: ClassVar[bool] = True
    signal: str
    type: Any = Any
    agents_may_answer: bool = False

    def fingerprint(self, identity: Identity) -> str:
        del identity
        return f"wait_for {self.signal} {type_text(self.type)}"

    def output_type(self) -> Any:
        return self.type


@dataclass(frozen=True, slots=True)
class Pause(Verb):
    """Wait for a number of seconds, or until an aware datetime."""

    kind: ClassVar[str] = "sleep"
    reported_later: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    seconds: float | None
    until: datetime | None = None

    def fingerprint(self, identity: Identity) -> str:
        del identity
        return "sleep"
