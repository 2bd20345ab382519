"""What crosses to another process: data by value, code and objects of a module by their names."""

from __future__ import annotations

import functools
import json
import operator
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from handrail import Agent, Codec, CodeNotFound, FakeBackend, OutputNotSerializable, TypeCodec
from handrail.codec.portable import PortableCodec
from handrail.typed.reference import resolve_name


class Lock:
    """Not data."""

    def __init__(self, name: str = "lock") -> None:
        self.name = name

    def held(self) -> str:
        """A method to be bound."""
        return self.name


@dataclass(frozen=True)
class Plan:
    """Data."""

    title: str
    due: date

    def shown(self) -> str:
        """A method of data."""
        return self.title


def double(number: int, *, by: int = 2) -> int:
    """A function with a name."""
    return number * by


LOCK = Lock("module")
AGENT = Agent("a", "Do it", backend=FakeBackend(["done"]))
SHORT = lambda number: number + 1  # noqa: E731  # a module holds it under a name
TRIPLE = functools.partial(double, by=3)


def portable(codec: Codec | None = None) -> PortableCodec:
    """A codec of this module."""
    return PortableCodec(codec or Codec(), __name__)


def again(value: Any) -> Any:
    """What another process has of a value."""
    return portable().load(portable().dump(value, where="w", root="args"))


@pytest.mark.parametrize(
    "value",
    [
        double, SHORT, LOCK, operator.add, json.dumps, len, Path, ValueError, Plan, list[int],
        str.upper, Path.exists, Plan.shown, date.today,
    ],
)  # fmt: skip
def test_what_a_module_holds_is_that_very_object(value: object) -> None:
    """Functions, classes, and objects that are no data."""
    assert again(value) == value


@pytest.mark.parametrize(
    "value",
    [1, "é\udc80", None, (1, [2, {"a": 3.5}]), {1: date(2026, 1, 2)}, Plan("t", date(2026, 1, 2))],
)
def test_data_is_the_same_data(value: object) -> None:
    """By the codec's rules."""
    assert again(value) == value


def test_code_and_data_may_lie_in_one_another() -> None:
    """In tuples and dicts, as arguments are."""
    value = (double, {"check": [json.loads, Plan("t", date(2026, 1, 2))]}, (ValueError, KeyError))
    assert again(value) == value


@pytest.mark.parametrize(
    ("made", "given", "gives"),
    [
        (functools.partial(double, by=5), 2, 10),
        (TRIPLE, 2, 6),
        (functools.partial(functools.partial(double), 4), None, 8),
        (LOCK.held, None, "module"),
        (Plan("t", date(2026, 1, 2)).shown, None, "t"),
        ("abc".upper, None, "ABC"),
    ],
)
def test_partials_and_bound_methods_cross_by_their_parts(
    made: Callable[..., Any], given: Any, gives: Any
) -> None:
    """They are called there as they would be here."""
    arguments = () if given is None else (given,)
    assert again(made)(*arguments) == gives


def test_an_agent_crosses_by_its_name() -> None:
    """Whatever it holds; the other process has its own."""
    codec = portable()
    text = codec.dump(AGENT, where="w", root="agent")
    assert json.loads(text)["$v"] == f"{__name__}:AGENT"
    assert codec.load(text) is AGENT


def _local() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


@dataclass
class Holder:
    """Data that holds something that is none."""

    lock: object


@pytest.mark.parametrize(
    ("value", "part", "why"),
    [
        (lambda: 1, "args", "lambda.*not importable by name"),
        (_local(), "args", "inner.*not importable by name"),
        ([1, {"a": threading.Lock()}], r"args\[1\]\['a'\]", "not data"),
        (Holder(Lock()), r"args\.lock", "not data"),
        (Lock().held, "args", "not data"),
        (functools.partial(double, by=Lock()), r"args\[2\]\['by'\]", "not data"),
        (type("Made", (), {}), "args", "cannot be found by its name|does not come back"),
    ],
)
def test_what_has_no_name_and_is_no_data_is_refused(value: object, part: str, why: str) -> None:
    """The error says which part it is, and why."""
    with pytest.raises(OutputNotSerializable, match=f"{part}.*({why})"):
        portable().dump(value, where="step 'a'", root="args")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module_anywhere:f", "No module named"),
        ("json:no_such_function", "json has no no_such_function"),
    ],
)
def test_a_name_that_means_nothing_here_says_what_is_missing(name: str, why: str) -> None:
    """With its module, and what to do."""
    text = json.dumps({"$": "handrail:ref", "$v": name})
    with pytest.raises(CodeNotFound, match=why) as raised:
        portable().load(text)
    assert raised.value.name == name


def test_the_class_of_a_value_is_imported_where_it_is_read(tmp_path: Path) -> None:
    """A process that has not met it loads its module; the codec itself imports nothing."""
    (tmp_path / "shop.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Item:\n    name: str\n"
        "def priced(item): return len(item.name)\n"
    )
    program = (
        "from handrail import Codec\n"
        "from handrail.codec.portable import PortableCodec\n"
        'text = \'{"$":"shop:Item","name":"tea"}\'\n'
        "print(PortableCodec(Codec()).load(text))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "Item(name='tea')\n"


def test_a_script_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``__main__`` holds is found by a worker that imports the file."""
    script = ModuleType("__main__")
    script.__file__ = "/somewhere/flow.py"
    exec("def act(): return 1", vars(script))
    monkeypatch.setitem(sys.modules, "__main__", script)
    act = vars(script)["act"]
    text = PortableCodec(Codec(), "__main__").dump(act, where="w", root="action")
    assert json.loads(text)["$v"] == "flow:act"
    assert resolve_name("flow:act") is act


def test_a_type_codec_of_the_users_counts() -> None:
    """As it does in a record."""
    codec = Codec([TypeCodec(Lock, lambda lock: lock.name, Lock)])
    crossing = PortableCodec(codec, __name__)
    text = crossing.dump(Lock("mine"), where="w", root="args")
    assert crossing.load(text).name == "mine"
