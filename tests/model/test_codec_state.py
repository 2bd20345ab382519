"""State of an object that is no declared field is refused, unless the object has it again."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import pytest

from handrail import (
    Codec,
    Executor,
    Found,
    OutputNotSerializable,
    SqliteJournal,
    Steps,
    Task,
    step,
    workflow,
)

CODEC = Codec()
T = TypeVar("T")


@dataclass
class Counted:
    items: list[int]

    def __post_init__(self) -> None:
        self.count = len(self.items)


@dataclass
class Indexed:
    words: list[str]

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._index = {word: at for at, word in enumerate(words)}


class _Named:
    def __init__(self) -> None:
        self.name = "unset"


@dataclass
class Derived(_Named):
    size: int

    def __post_init__(self) -> None:
        super().__init__()


class _Slotted:
    __slots__ = ("note",)
    note: str


@dataclass(slots=True)
class Noted(_Slotted):
    size: int


@attrs.define(slots=False)
class Loose:
    size: int


@attrs.define
class Cached:
    size: int

    @functools.cached_property
    def twice(self) -> int:
        """Computed once."""
        return 2 * self.size


class Extended(msgspec.Struct, dict=True):
    size: int


class _Row(NamedTuple):
    size: int


class Row(_Row):
    pass


@dataclass(frozen=True, slots=True)
class Box:
    """A box of anything."""

    item: Any


@dataclass
class Of(Generic[T]):
    item: T

    @functools.cached_property
    def text(self) -> str:
        """Computed once."""
        return str(self.item)


@dataclass
class Locked:
    size: int
    table: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.recent = deque([self.size])
        self.itself = self
        self.shown = str
        self.step = functools.partial(max, self.size)


@dataclass
class Broken(Exception):
    code: int


@attrs.define(frozen=True, slots=False, cache_hash=True)
class Hashed:
    size: int


@dataclass
class Line(deque[int]):
    size: int = 1


def _noted(error: Exception) -> Exception:
    error.add_note("a note")
    return error


def _with(value: Any, **state: Any) -> Any:
    for name, item in state.items():
        setattr(value, name, item)
    return value


def _without(value: Any, name: str) -> Any:
    delattr(value, name)
    return value


def _seen(value: Any, name: str) -> Any:
    getattr(value, name)
    return value


def _grown() -> Counted:
    value = Counted([1])
    value.items.append(2)
    return value


LOST: dict[str, tuple[Callable[[], Any], str]] = {
    "of __post_init__, changed since": (lambda: _with(Counted([1]), count=7), ".count"),
    "of __post_init__, outdated": (_grown, ".count"),
    "of __post_init__, deleted": (lambda: _without(Counted([1]), "count"), ".count"),
    "of a hand-written __init__": (lambda: Indexed(["a"]), "._index"),
    "of a base that is no dataclass": (lambda: _with(Derived(1), name="Ann"), ".name"),
    "a slot of such a base": (lambda: _with(Noted(1), note="a"), ".note"),
    "attrs without slots": (lambda: _with(Loose(1), extra=[1]), ".extra"),
    "msgspec with a dict": (lambda: _with(Extended(1), extra=[1]), ".extra"),
    "a subclass of a NamedTuple": (lambda: _with(Row(1), extra=[1]), ".extra"),
    "a method replaced": (lambda: _with(Counted([1]), __post_init=print), ".__post_init"),
    "inside what cannot be recorded": (lambda: _with(Locked(1), recent=deque([2])), ".recent"),
    "another function": (lambda: _with(Locked(1), shown=repr), ".shown"),
    "of an exception": (lambda: Broken(3), ".args"),
    "a note of an exception": (lambda: _noted(Broken(code=3)), ".__notes__"),
}

KEPT: dict[str, Callable[[], Any]] = {
    "computed again": lambda: Counted([1, 2]),
    "a base's start": lambda: Derived(1),
    "what is no data, made again": lambda: Locked(1),
    "functools.cached_property": lambda: _seen(Of(1), "text"),
    "cached_property of attrs": lambda: _seen(Cached(1), "twice"),
    "a generic's arguments": lambda: Of[int](1),
    "an exception's fields": lambda: Broken(code=3),
    "a slot that is not set": lambda: Noted(1),
    "a hash that attrs keeps": lambda: (hash(one := Hashed(1)), one)[1],
}

PLACES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "itself": (lambda one: one, ""),
    "a list": (lambda one: [0, one], "[1]"),
    "a dict": (lambda one: {"a": one}, "['a']"),
    "a tuple": (lambda one: (0, (one,)), "[1][0]"),
    "a field": (lambda one: Box([one]), ".item[0]"),
    "a key's value": (lambda one: {1: one}, "[1]"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", LOST)
def test_state_that_would_be_lost_is_refused_by_its_name(case: str, place: str) -> None:
    """The attribute that would come back otherwise is named, with where the object is."""
    make, attribute = LOST[case]
    put, path = PLACES[place]
    with pytest.raises(OutputNotSerializable, match="it is no field, and comes back as") as caught:
        CODEC.dump(put(make()))
    found = caught.value.field.replace("[0][1]", "[1]") if place == "a key's value" else None
    assert found or caught.value.field == f"output{path}{attribute}"
    assert caught.value.field.endswith(attribute)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", KEPT)
def test_state_that_the_rebuilt_object_has_again_passes(case: str, place: str) -> None:
    """A value that is computed from the fields needs no record."""
    put, _ = PLACES[place]
    text = CODEC.dump(put(KEPT[case]()))
    assert CODEC.dump(CODEC.load(text)) == text


def test_items_of_a_base_class_are_refused() -> None:
    """A class in C keeps them where no attribute shows them."""
    with pytest.raises(OutputNotSerializable, match="Line is a subclass of deque"):
        CODEC.dump([Line()])


@pytest.mark.extra("pydantic")
def test_state_of_pydantic_objects_is_kept_or_refused() -> None:
    """A model's extra and private values are recorded; what no field of pydantic's has is not."""
    import pydantic

    class Model(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        size: int
        _note: str = "a"

    class Root(pydantic.RootModel[list[int]]):
        pass

    class PrivateRoot(pydantic.RootModel[int]):
        _note: str = "a"

    @pydantic.dataclasses.dataclass(config={"extra": "allow"})
    class Data:
        size: int

    def back(value: Any) -> Any:
        return CODEC.load(CODEC.dump(value), type(value))

    model = Model(size=1, more=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    model._note = "b"
    assert (back(model), back(model)._note, back(model).more) == (model, "b", 2)
    for root in (Root([1]), PrivateRoot(1)):
        assert vars(back(root)) == vars(root)
    model._note = object()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OutputNotSerializable, match=r"private\['_note'\]"):
        CODEC.dump(model)
    with pytest.raises(OutputNotSerializable, match=r"output\.more "):
        CODEC.dump(Data(size=1, more=2))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    root = Root([1])
    object.__setattr__(root, "foreign", 1)
    with pytest.raises(OutputNotSerializable, match=r"output\.foreign "):
        CODEC.dump(root)


def _lost() -> Counted:
    return _with(Counted([1]), count=7)  # type: ignore[no-any-return]


@workflow
def _output() -> Steps[Any]:
    return (yield from step("a").call(_lost))


@workflow
def _input(given: Any) -> Steps[Any]:
    yield from step("a").call(str, given)


@workflow
def _gate() -> Steps[Any]:
    return (yield from step("a").ask("?", type=Counted))


@workflow
def _signal() -> Steps[Any]:
    return (yield from step("a").wait_for("s", Counted))


def _found(task: Task) -> Any:
    return step("b").call(lambda: Found(None, [Task("u", _lost())] if task.id == "t" else []))


@workflow
def _payload() -> Steps[Any]:
    return (yield from step("a").work([Task("t", _lost())], _found))


@workflow
def _found_payload() -> Steps[Any]:
    return (yield from step("a").work([Task("t")], _found, on_error="fail_fast"))


@workflow
def _returned() -> Steps[Any]:
    yield from step("a").call(int)
    return _lost()


@pytest.mark.parametrize("stored", ["memory", "SQLite"])
@pytest.mark.parametrize(
    ("flow", "given"),
    [(_output, ()), (_input, (_lost(),)), (_payload, ()), (_found_payload, ()), (_returned, ())],
)
async def test_lost_state_is_refused_when_a_run_first_records_it(
    flow: Any, given: tuple[Any, ...], stored: str, tmp_path: Path
) -> None:
    """Outputs, inputs, payloads of tasks and what the workflow returns: each is refused."""
    journal = SqliteJournal(tmp_path / "runs.db") if stored == "SQLite" else None
    async with Executor(journal=journal, durable=True) as executor:
        try:
            error = (await executor.run(flow, *given)).error or ""
        except OutputNotSerializable as refused:
            error = str(refused)
    assert "count cannot be recorded: it is no field, and comes back as 1, not as 7" in error


@pytest.mark.parametrize(("flow", "verb"), [(_gate, "answer"), (_signal, "signal")])
async def test_lost_state_is_refused_when_it_is_sent_to_a_run(flow: Any, verb: str) -> None:
    """An answer or a signal whose state would be lost is refused where it is given."""
    async with Executor(durable=True) as executor:
        run = await executor.run(flow)
        name = "a" if verb == "answer" else "s"
        with pytest.raises(OutputNotSerializable, match=r"\.count .* not as 7"):
            await getattr(executor, verb)(run.run_id, name, _lost())
