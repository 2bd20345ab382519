"""Which class a record means: declared, or loaded; nothing is imported to find one."""

from __future__ import annotations

import enum
import importlib.util
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import attrs
import msgspec
import pytest

from handrail import Codec, OutputNotSerializable, StepResult, Unresolvable, Unresolved

T = TypeVar("T")
CODEC = Codec()


@dataclass
class Page(Generic[T]):
    items: list[T]
    more: dict[str, T] | None = None


def _local_classes() -> tuple[Any, Any, Any]:
    @dataclass
    class Inner:
        a: int

    @attrs.frozen
    class Outer:
        inner: Inner | None
        others: tuple[Inner, ...] = ()

    class Colour(enum.Enum):
        RED = 1

    # A string annotation finds no local class, so these are told.
    attrs.resolve_types(Outer, localns={"Inner": Inner})
    Outer.__annotations__.update({"inner": Inner | None, "others": tuple[Inner, ...]})
    return Inner, Outer, Colour


def test_a_local_class_comes_back_through_the_declared_type() -> None:
    """A class that no module holds is found in what is declared, however deep in it."""
    inner, outer, colour = _local_classes()
    for value, declared in [
        (inner(1), inner),
        ([inner(1)], list[inner]),
        ({"a": (inner(1), 2)}, dict[str, tuple[inner, int]]),
        (outer(inner(1), (inner(2),)), outer),
        (Page([inner(1)], {"b": inner(2)}), Page[inner]),
        (colour.RED, Annotated[colour | None, "x"]),
        (StepResult("a", "a", "python", "succeeded", inner(1)), StepResult[inner]),
        ([inner, list[inner]], Page[Literal["a"] | inner]),
    ]:
        text = CODEC.dump(value, declared=declared)
        assert CODEC.load(text, declared) == value
        kept = CODEC.load_or_keep(text)
        assert isinstance(kept, Unresolved)
        assert CODEC.load(kept.text, declared) == value


def test_a_local_class_that_nobody_declares_is_refused_if_asked() -> None:
    """Who knows what is declared is told before a value is lost, not when it is read."""
    inner, _, _ = _local_classes()
    with pytest.raises(OutputNotSerializable, match=r"Inner cannot be found by its name"):
        CODEC.dump(inner(1), declared=Any)
    with pytest.raises(OutputNotSerializable, match=r"Inner cannot be found by its name"):
        CODEC.dump([inner(1)], declared=list[int])


def test_a_class_whose_name_is_another_ones_by_now_is_refused_if_asked() -> None:
    """A name that leads to another class than the value's does not bring it back."""
    first = globals()["Shadowed"]
    assert CODEC.dump(first(1), declared=Any) == CODEC.dump(first(1), declared=Any)
    try:
        globals()["Shadowed"] = type("Shadowed", (first,), {"__module__": __name__})
        with pytest.raises(OutputNotSerializable, match=r"output\[0\] cannot .*Shadowed cannot be"):
            CODEC.dump([first(1)], declared=Any)
        assert CODEC.dump([first(1)], declared=first)
    finally:
        globals()["Shadowed"] = first


@dataclass
class Shadowed:
    a: int


@dataclass
class NewName:
    a: int
    inner: OtherNewName | None = None


class OtherNewName(NamedTuple):
    b: int


class Shade(enum.Enum):
    DARK = 1


@pytest.mark.parametrize(
    ("text", "declared", "value"),
    [
        ('{"$":"old:Name","a":1}', NewName, NewName(1)),
        ('{"$":"old:Name","a":1}', NewName | None, NewName(1)),
        ('[{"$":"old:Name","a":1}]', list[NewName], [NewName(1)]),
        ('{"x":{"$":"old:Name","a":1}}', dict[str, NewName], {"x": NewName(1)}),
        (
            '{"$":"tuple","v":[1,{"$":"old:Name","a":1}]}',
            tuple[int, NewName],
            (1, NewName(1)),
        ),
        ('{"$":"dict","v":[[1,{"$":"old:Name","a":1}]]}', dict[int, NewName], {1: NewName(1)}),
        (
            '{"$":"old:Name","a":1,"inner":{"$":"old:Inner","b":2}}',
            NewName,
            NewName(1, OtherNewName(2)),
        ),
        (
            (
                '{"$":"handrail:StepResult","name":"a","path":"a","step_type":"python",'
                '"status":"succeeded","output":{"$":"old:Name","a":1}}'
            ),
            StepResult[NewName],
            StepResult("a", "a", "python", "succeeded", NewName(1)),
        ),
        ('{"$":"old:Shade","name":"DARK"}', Shade, Shade.DARK),
    ],
)
def test_a_class_that_was_renamed_is_the_declared_one(text: str, declared: Any, value: Any) -> None:
    """A name that means nothing any more is the one data class that is declared in its place."""
    assert CODEC.load(text, declared) == value
    assert isinstance(CODEC.load_or_keep(text), Unresolved)


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ('{"$":"old:Name","a":1}', Any),
        ('{"$":"old:Name","a":1}', int),
        ('{"$":"old:Name","a":1}', NewName | OtherNewName),
        ('{"$":"old:Name","a":1,"c":2}', NewName),
        ('{"$":"old:Name","inner":null}', NewName),
        ('{"$":"old:Shade","name":"LIGHT"}', Shade),
    ],
)
def test_a_guess_is_made_only_where_it_is_sure(text: str, declared: Any) -> None:
    """Without one declared class that has the recorded fields, the value is not read."""
    with pytest.raises(Unresolvable, match="old:"):
        CODEC.load(text, declared)


def test_a_loaded_class_goes_before_the_declared_one() -> None:
    """A value of a subclass, say, is not cut down to the class that is declared."""
    text = CODEC.dump(NewName(1))
    assert type(CODEC.load(text, Page[int])) is NewName


def test_a_class_may_gain_and_lose_fields() -> None:
    """A record of the class as it was is read: new fields have defaults, lost ones are dropped."""
    tag = f"{__name__}:NewName"
    assert CODEC.load(f'{{"$":"{tag}","a":1}}') == NewName(1)
    assert CODEC.load(f'{{"$":"{tag}","a":1,"inner":null,"lost":[1]}}') == NewName(1)
    with pytest.raises(Unresolvable, match="missing 1 required positional argument: 'a'"):
        CODEC.load(f'{{"$":"{tag}","inner":null}}')


@pytest.mark.parametrize(
    "tag",
    [
        "subprocess:Popen",
        "os:system",
        "builtins:dict",
        "handrail:Nothing",
        "handrail:nothing.at.all",
    ],
)
def test_only_data_classes_are_built(tag: str) -> None:
    """A record cannot have any other class, or a function, called."""
    text = f'{{"$":"{tag}","args":"x"}}'
    assert CODEC.load_or_keep(text) == Unresolved(text, tag)


def test_nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class in a module that is not loaded stays unresolved, though it could be imported."""
    (tmp_path / "not_loaded_yet.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    a: int\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = '{"$":"not_loaded_yet:A","a":1}'
    assert CODEC.load_or_keep(text) == Unresolved(text, "not_loaded_yet:A")
    assert "not_loaded_yet" not in sys.modules


def test_a_module_is_not_asked_for_what_it_loads_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module's own ``__getattr__`` may import, so it is not called."""
    asked: list[str] = []
    module = ModuleType("lazy_module")
    module.__getattr__ = asked.append  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    assert isinstance(CODEC.load_or_keep('{"$":"lazy_module:A","a":1}'), Unresolved)
    assert isinstance(CODEC.load_or_keep('{"$":"type","v":"lazy_module:A"}'), Unresolved)
    assert asked == []


def test_a_module_that_loads_when_looked_at_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module behind ``importlib.util.LazyLoader`` is not loaded by a record."""
    source = tmp_path / "loads_later.py"
    source.write_text("raise SystemExit('loaded')")
    spec = importlib.util.spec_from_file_location("loads_later", source)
    assert spec is not None
    assert spec.loader is not None
    loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "loads_later", module)
    assert isinstance(CODEC.load_or_keep('{"$":"loads_later:A","a":1}'), Unresolved)


def test_a_class_that_was_loaded_again_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reload the name means what the module holds now."""
    module: Any = ModuleType("reloaded_module")
    monkeypatch.setitem(sys.modules, "reloaded_module", module)
    text = '{"$":"reloaded_module:A","a":1}'
    for _ in range(2):
        module.A = msgspec.defstruct("A", ["a"], module="reloaded_module")
        assert type(CODEC.load(text)) is module.A
    del module.A
    assert isinstance(CODEC.load_or_keep(text), Unresolved)


SCRIPT = """
    from dataclasses import dataclass
    from handrail import Codec

    @dataclass
    class Report:
        class Part(tuple): pass
        title: str

    if __name__ == "__main__":
        text = Codec().dump(Report("a"))
        print(text)
        assert Codec().load(text) == Report("a")
        assert Codec().load(Codec().dump(Report)) is Report
    """


def test_a_script_finds_its_own_classes(tmp_path: Path) -> None:
    """A class of the script that runs is named by the script's file, and found under that name."""
    (tmp_path / "flow.py").write_text(textwrap.dedent(SCRIPT))
    ran = subprocess.run(
        [sys.executable, "flow.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == '{"$":"flow:Report","title":"a"}\n'
