"""Every kind of value that a journal can hold, and a workflow that yields them all."""

from __future__ import annotations

import base64
import enum
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
from actions import act_in_thread, did, dies_until

from handrail import (
    AgentOptions,
    AgentReply,
    AgentResult,
    Backoff,
    BranchResult,
    Budget,
    Codec,
    CommandResult,
    Files,
    Holder,
    Incident,
    Ladder,
    Limits,
    OpenGate,
    Plan,
    PlannedStep,
    Probe,
    Retry,
    RollbackError,
    RunInfo,
    Secrets,
    Skipped,
    Stage,
    StageResult,
    StepChange,
    StepResult,
    Steps,
    TypeCodec,
    Usage,
    ValidationResult,
    ValidationRoundResult,
    WorkflowResult,
    step,
    workflow,
)

T = TypeVar("T")
SECRET = "correct-horse-battery"
"""The value of the variable ``VARIABLE``, when the journals are written and when they are read."""
VARIABLE = "JOURNALS_OF_0_1_KEY"


# -- values ----------------------------------------------------------------------------------------


class Colour(enum.Enum):
    """An enum."""

    RED = 1
    BLUE = "blue"


class Access(enum.Flag):
    """Flags, which may be combined."""

    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Task:
    """A data class."""

    title: str
    files: tuple[str, ...] = ()
    due: datetime | None = None


@dataclass
class Sealed:
    """A data class with a field that its constructor does not take."""

    name: str
    mark: str = field(init=False, default="new")


@dataclass(frozen=True)
class Box(Generic[T]):
    """A generic data class."""

    content: T


@attrs.frozen
class Point:
    """A class of attrs, one of whose arguments is called otherwise than its field."""

    x: int
    _y: int = 0


class Row(msgspec.Struct, frozen=True):
    """A Struct."""

    name: str
    size: int = 0


class Pair(NamedTuple):
    """A named tuple."""

    first: int
    second: str = "b"


class Settings(TypedDict):
    """A dict with known keys."""

    name: str
    level: Colour


class Money:
    """A class that is no data class, and has a codec of its own."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


def _cents(money: Money) -> int:
    return money.cents


CODEC = Codec(types=(TypeCodec(Money, _cents, Money, name="shop:money"),))
NOON = datetime(2026, 1, 2, 12, 30, 15, 250, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
USAGE = Usage(
    input_tokens=10, output_tokens=5, cost_usd=0.25, turns=2, cached_tokens=3, reasoning_tokens=1
)
DONE = StepResult("lint", "check/lint", "python", "succeeded", [1, (2,)], duration_ms=1.5)

VALUES: dict[str, Callable[[], Any]] = {
    "plain": lambda: {"a": [1, 2.5, True, None, "text"], "b": {}},
    "surrogate": lambda: "\ud800 alone",
    "large int": lambda: [2**63, -(2**80), 2**1100],
    "not finite": lambda: [float("inf"), float("-inf"), float("nan")],
    "odd keys": lambda: {1: "one", (2, 3): "pair", None: "none", "$": "tag"},
    "tuple": lambda: (1, ("a", ()), [()]),
    "sets": lambda: {"set": {3, 1, 2}, "frozenset": frozenset({"x", "y"}), "empty": set[int]()},
    "bytes": lambda: [b"text\n", b"\x00\xff", bytearray(b"abc"), bytearray(b"\x80")],
    "times": lambda: [
        NOON,
        datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - one without a zone
        NOON.astimezone(timezone(timedelta(hours=2))),
        NOON.astimezone(timezone(timedelta(hours=2), "mine")),
        datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
        date(2026, 1, 2),
        time(3, 4, 5),
        time(3, 4, tzinfo=UTC),
        timedelta(days=-1, seconds=3, microseconds=5),
        timezone(timedelta(minutes=-90), "odd"),
        BERLIN,
    ],
    "numbers": lambda: [Decimal("1.50"), Decimal("NaN"), Fraction(2, 3), complex(1, -2.5)],
    "names": lambda: [
        UUID("12345678-1234-5678-1234-567812345678"),
        Path("a/b"),
        PurePosixPath("/c"),
        PureWindowsPath("C:/d"),
    ],
    "containers": lambda: [
        OrderedDict([("b", 1), ("a", 2)]),
        Counter({"a": 2}),
        MappingProxyType({"a": (1,)}),
        defaultdict(list, {"a": [1]}),
        defaultdict(None, {"a": 1}),
        deque([1, 2, 3], maxlen=5),
        deque([1]),
        range(2, 20, 3),
        msgspec.UNSET,
    ],
    "types": lambda: [
        int,
        type(None),
        datetime,
        Task,
        list[Task],
        dict[str, int | None],
        Optional[Colour],  # noqa: UP045 - it is written otherwise than a union by |
        Literal["a", 1],
        Annotated[int, msgspec.Meta(gt=0, description="a count")],
        tuple[int, ...],
        type[Task],
        Box[int],
        Callable[[int], str],
        Any,
    ],
    "classes": lambda: [
        Task("write", ("a.py",), NOON),
        Sealed("seal"),
        Box(Box(1)),
        Point(1, 2),
        Row("r", 3),
        Pair(1),
        Colour.RED,
        Colour.BLUE,
        Access.READ,
        Access.READ | Access.WRITE,
        Money(150),
    ],
    "of handrail": lambda: [
        AgentResult(Task("t"), USAGE, "m-1", "s-1", 2, "fake", USAGE),
        BranchResult(1, "right", Task("t")),
        CommandResult(0, "out", "err", Task("t")),
        OpenGate("ok?", "Go on?", ("yes", 1), int, 5.0, 6.0, 1, has_default=True, opening=2),
        RollbackError("a/b", "Broken: no", "workflows.Broken"),
        Skipped("not needed"),
        StageResult("lint", passed=False, output="o", error="e", duration_ms=2.0),
        DONE,
        USAGE,
        ValidationResult(
            passed=True,
            rounds=(ValidationRoundResult(1, (StageResult("lint", passed=True),), fix=DONE),),
        ),
        WorkflowResult("child", "r", "succeeded", (DONE,), 3.0, Task("t"), Task("t")),
        WorkflowResult(
            "child",
            "r",
            "failed",
            error="no",
            rollback_errors=(RollbackError("a", "no", "workflows.Broken"),),
            incidents=(Incident("a", 1.0, "transient", "down", "retry", 5.0),),
        ),
    ],
    "settings of handrail": lambda: [
        AgentOptions(model="m-1", permission="read_only", allowed_tools=("Read",)),
        AgentReply("text", "m-1", "s-1", USAGE, {"a": 1}, has_value=True),
        Backoff(initial_s=2.0),
        Budget(tokens=10),
        Files(("a.py",), max_bytes=5),
        Holder(1, "host", 2.0),
        Ladder(transient_retries=6, backoff=Backoff(5.0, 2.0, 300.0), crash_retries=1),
        Limits(max_steps=3, tags={"gpu": 1}),
        Plan("r", "w", None, (PlannedStep("a", "will run"),)),
        Probe(found=True),
        Retry(2),
        RunInfo("r", "w", "failed", 1.0, 2),
        Secrets(names=("A",)),
        Stage("lint", "ruff check"),
        StepChange("a", "was", "now"),
    ],
    "secrets": lambda: [
        f"Bearer {SECRET}!",
        f'{{"token": "{SECRET}"}}',
        {SECRET: "as a key"},
        SECRET.encode() + b"\xff",
        base64.b64encode(SECRET.encode()).decode(),
        Task(SECRET),
    ],
    "large": lambda: "0123456789" * 1_700,
}


async def give(name: str) -> Any:
    """A value that is decoded by its tags alone."""
    did()
    return VALUES[name]()


async def a_plan(title: str) -> Task:
    """A value whose type is declared."""
    did()
    return Task(title, ("a.py",), NOON)


async def boxes() -> dict[str, list[Box[Task]]]:
    """A generic class in containers, declared."""
    did()
    return {"a": [Box(Task("in a box"))]}


async def settings() -> Settings:
    """A TypedDict."""
    did()
    return {"name": "n", "level": Colour.BLUE}


def of_local_class() -> Callable[[], Any]:
    """An action whose value is of a class that only its annotation leads to."""

    @dataclass(frozen=True)
    class Local:
        number: int

    async def declared_here() -> Any:
        did()
        return Local(7)

    declared_here.__annotations__["return"] = Local
    return declared_here


OF_LOCAL_CLASS = of_local_class()


def value_is(name: str) -> bool:
    """True of what comes back equal to what is made anew; NaN is equal to nothing."""
    return name not in {"not finite", "numbers"}


@workflow("values", description="Every kind of value there is")
def values(
    task: Task,
    *,
    price: Decimal = Decimal("1.50"),
    colours: tuple[Colour, ...] = (),
    anything: Any = None,
    ends: Literal["well", "killed"] = "well",
) -> Steps[dict[str, Any]]:
    """Each of them is the output of a step, and an argument of the next one; all are the run's."""
    kept: dict[str, Any] = {"inputs": (task, price, colours, anything)}
    for name, make in VALUES.items():
        kept[name] = yield from step(name).call(give, name)
        assert not value_is(name) or kept[name] == make(), name
    for name in VALUES:
        if name not in {"large", "types"}:  # what is that long is cut
            yield from step(f"with {name}").call(act_in_thread, kept[name])
    kept["task"] = yield from step("task").call(a_plan, "declared")
    kept["boxes"] = yield from step("boxes").call(boxes)
    kept["settings"] = yield from step("settings").call(settings)
    number = yield from step("local").call(OF_LOCAL_CLASS)
    again = yield from step("large again").call(give, "large")
    assert kept.pop("large") == again
    del kept["settings of handrail"], kept["times"], kept["containers"]
    if ends == "killed":
        yield from step("dies").call(dies_until, 2)
    return {**kept, "local": number.number}
