"""The verbs whose steps run side by side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from handrail.errors import DefinitionError
from handrail.model.dataclass import dataclass
from handrail.model.paths import encode_key
from handrail.model.policy import OnError
from handrail.model.results import StepResult
from handrail.model.work import StopRule, Task
from handrail.steps.declared import body_output
from handrail.steps.identity import Identity, callable_text
from handrail.steps.verbs import Step, Verb
from handrail.typed.reference import reference

Mode: TypeAlias = Literal["fail_fast", "continue", "all_or_nothing", "race"]
Result: TypeAlias = StepResult[Any]
OUTPUTS, RESULTS = "outputs", "results"


def winner(path: str) -> str:
    """How the output of a race that this path won follows from the record."""
    return f"winner {path}"


class Group(Verb):
    """Members that run side by side: what they are, what decides them, and what comes of them.

    A failed member decides ``fail_fast``. A ``race`` fails if no member succeeds.
    """

    __slots__ = ()
    grouped = True
    reported_later = True
    on_error: OnError = "fail_fast"
    max_concurrency: int | None = None
    min_success: float | None = None
    sequence: ClassVar[type[list[Any] | tuple[Any, ...]]] = tuple
    """The class of an output that has a value for each member."""

    @property
    def mode(self) -> Mode:
        """What failed members do to the others, and to the group."""
        return self.on_error

    @abstractmethod
    def members(self) -> Iterable[Any]:
        """The steps, or the items of which ``body`` makes members."""

    def held(self) -> Sequence[Step[Any]]:
        """The members."""
        return tuple(self.members())

    def child_ended(self, ended: Result, results: Mapping[int, Result]) -> bool:
        """True if this end decides the group: no member is begun any more, others are stopped.

        ``results`` has all ends so far, by the index of the member.
        """
        del ended, results
        return False

    def output(self, results: Sequence[Result], decider: Result | None) -> tuple[Any, str]:
        """The output, and how it follows from the record of the members (see ``record.outputs``).

        Empty: it does not, and is recorded. ``results`` are in the order of the members.

        Raises:
            Exception: the group fails with this.
        """
        del decider
        if self.mode == "continue":
            return self.sequence(results), RESULTS
        return self.sequence([result.output for result in results]), OUTPUTS


@dataclass(frozen=True, slots=True)
class ParallelGroup(Group):
    """Run steps side by side."""

    kind: ClassVar[str] = "parallel"
    steps: tuple[Step[Any], ...]
    on_error: OnError = "fail_fast"
    max_concurrency: int | None = None
    min_success: float | None = None

    def fingerprint(self, identity: Identity) -> str:
        return f"parallel {self.on_error} {identity([step.name for step in self.steps])}"

    def members(self) -> Sequence[Step[Any]]:
        return self.steps


@dataclass(frozen=True, slots=True)
class RaceGroup(Group):
    """Run steps side by side until one succeeds."""

    kind: ClassVar[str] = "race"
    needs_one: ClassVar[bool] = True
    steps: tuple[Step[Any], ...]

    @property
    def mode(self) -> Mode:
        return "race"

    def fingerprint(self, identity: Identity) -> str:
        return f"race {identity([step.name for step in self.steps])}"

    def members(self) -> Sequence[Step[Any]]:
        return self.steps

    def child_ended(self, ended: Result, results: Mapping[int, Result]) -> bool:
        del results
        return ended.success and ended.status != "skipped"

    def output(self, results: Sequence[Result], decider: Result | None) -> tuple[Any, str]:
        won = decider or next(result for result in results if result.success)
        return won.output, winner(won.path)


class Bodied(Group):
    """A group that makes a member of each item, by its body."""

    __slots__ = ()
    body: Callable[..., Any]

    def held(self) -> Sequence[Step[Any]]:
        """None: members are made while it runs."""
        return ()

    @property
    def function(self) -> Any:
        """The function that makes a member of a value: the body itself, or a workflow's."""
        definition = getattr(self.body, "definition", None)
        return self.body if definition is None else definition.function

    def member_type(self) -> Any:
        """The declared output type of a member."""
        return body_output(self.body)

    @abstractmethod
    def keyed(self, item: Any, index: int) -> tuple[Any, str]:
        """The value that the body gets, and the member's encoded key.

        Raises:
            DefinitionError: the key cannot be encoded.
            Exception: what the user's ``key`` raised.
        """

    def compared(self, item: Any) -> Any:
        """The part of a member's item that must match the record."""
        return item


@dataclass(frozen=True, slots=True)
class ForEachGroup(Bodied):
    """Run a body for each item, side by side, within a sliding window."""

    kind: ClassVar[str] = "for_each"
    sequence: ClassVar[type[list[Any] | tuple[Any, ...]]] = list
    items: Iterable[Any] | Mapping[Any, Any]
    body: Callable[[Any], Any]
    on_error: OnError = "fail_fast"
    max_concurrency: int | None = None
    key: Callable[[Any], Any] | None = None
    min_success: float | None = None

    def fingerprint(self, identity: Identity) -> str:
        return f"for_each {self.on_error} {callable_text(self.body, identity)}"

    def members(self) -> Iterable[Any]:
        return self.items

    def keyed(self, item: Any, index: int) -> tuple[Any, str]:
        if isinstance(self.items, Mapping):
            given, value = item
            key = given if self.key is None else self.key(value)
        else:
            value = item
            key = index if self.key is None else self.key(value)
        try:
            return value, encode_key(key)
        except ValueError as error:
            raise DefinitionError(f"item {index} of {reference(self.body)}: {error}") from None


@dataclass(frozen=True, slots=True)
class WorkGroup(Bodied):
    """Run a body for each task, the most urgent first; a task may bring further tasks."""

    kind: ClassVar[str] = "work"
    tasks: tuple[Task, ...]
    body: Callable[[Task], Any]
    on_error: Literal["continue", "fail_fast"] = "continue"  # pyright: ignore[reportIncompatibleVariableOverride]  # it is frozen
    max_concurrency: int | None = None
    at_most: int | None = None
    stop: StopRule | None = None

    def fingerprint(self, identity: Identity) -> str:
        return f"work {self.on_error} {callable_text(self.body, identity)}"

    def members(self) -> Iterable[Task]:
        return self.tasks

    def keyed(self, item: Task, index: int) -> tuple[Any, str]:
        del index
        return item, encode_key(item.id)

    def compared(self, item: Task) -> Any:
        return item.payload
