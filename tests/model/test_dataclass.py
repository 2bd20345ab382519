"""handrail's dataclasses are those of the standard library, but for what defining them costs."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle  # noqa: TID251  # of values that are made here
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from handrail.model import dataclass as ours

T = TypeVar("T")
Define = Callable[..., Any]


def classes(define: Define) -> list[Any]:
    """The same classes, made by this decorator."""

    @define(frozen=True, slots=True, kw_only=True)
    class Base:
        run_id: str = ""
        seq: int = 0

    @define(frozen=True, slots=True)
    class Event(Base):
        path: str
        items: list[int] = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=3, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.path == "refused":
                raise ValueError(self.path)

    @define(frozen=True, slots=True)
    class Result(Generic[T]):
        output: T
        made: int = dataclasses.field(default=1, init=False)

        def __repr__(self) -> str:
            return "of its own"

    @define(slots=True)
    class Sums:
        total: int = 0

    return [Base, Event, Result, Sums]


STANDARD, OURS = classes(dataclasses.dataclass), classes(ours.dataclass)
ARGUMENTS: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = [
    (0, (), {}), (0, (), {"run_id": "r", "seq": 2}), (0, ("r",), {}), (1, ("a",), {}), (1, (), {}),
    (1, ("a", [1]), {"seq": 4, "hidden": 5}), (1, ("refused",), {}), (1, ("a",), {"other": 1}),
    (2, ("x",), {}), (2, ("x", 2), {}), (3, (), {}), (3, (7,), {}),
]  # fmt: skip


def told(call: Callable[[], Any]) -> Any:
    """What it gives, or the class of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # whatever it is, both are to raise it
        return type(error)


@pytest.mark.parametrize(("which", "args", "kwargs"), ARGUMENTS)
def test_an_instance_is_made_and_shown_as_the_standard_library_has_it(
    which: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """With these arguments: its text, its fields, what it is equal to, and what it refuses."""

    def facts(made: list[Any]) -> Any:
        one, other = made[which](*args, **kwargs), made[which](*args, **kwargs)
        names = [field.name for field in dataclasses.fields(one)]
        return (
            repr(one).rpartition("<locals>.")[2],
            dataclasses.asdict(one),
            (one == other, one != other, one == 1, one == copy.copy(one)),
            told(lambda: hash(one) == hash(other)),
            [told(lambda name=name: setattr(one, name, 9)) for name in names],  # type: ignore[misc]
            [told(lambda name=name: delattr(one, name)) for name in names],  # type: ignore[misc]
            told(lambda: dataclasses.replace(other, **{names[0]: 8})) == other,
        )

    assert told(lambda: facts(OURS)) == told(lambda: facts(STANDARD))


@pytest.mark.parametrize("which", range(4))
def test_a_class_is_what_the_standard_library_would_make(which: int) -> None:
    """What can be asked of it, before and after its first instance, is the same."""

    def facts(cls: Any) -> Any:
        return (
            str(inspect.signature(cls)),
            cls.__slots__,
            cls.__match_args__,
            repr(cls.__dataclass_params__),
            [(one.name, one.type, one.kw_only, one.init) for one in dataclasses.fields(cls)],
            cls.__hash__ is None,
        )

    new = classes(ours.dataclass)[which]
    assert facts(new) == facts(STANDARD[which])
    told(new)
    assert facts(new) == facts(STANDARD[which])


@ours.dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """One that can be found by its name."""

    output: T
    note: str = ""


class Special(Kept[int]):
    """A class made of it."""


def test_an_instance_survives_pickle_and_is_made_through_its_type() -> None:
    """Frozen and slotted as it is; also one of a generic alias, and of a subclass."""
    one = Kept[str]("a", note="b")
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)  # made here
    assert not hasattr(one, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):  # a TypeError there: cpython issue 90562
        one.unknown = 1  # type: ignore[attr-defined]
    assert Special(3).output == 3
    match one:
        case Kept(output, note):
            assert (output, note) == ("a", "b")
