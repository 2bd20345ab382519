"""A recorded value whose class is not known reads as the class itself might have it."""

from __future__ import annotations

import pytest

from handrail.codec.unresolved import Unresolved


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"$":"flow:Color","name":"RED"}', "Color.RED"),
        ('{"$":"flow:Outer.Plan","title":"t","steps":["a",1,null]}',
         "Plan(title='t', steps=['a', 1, None])"),
        ('{"$":"flow:Plan","of":{"$":"flow:Color","name":"RED"}}', "Plan(of=Color.RED)"),
        ('{"$":"set","v":[1,2]}', "set([1, 2])"),
        ('{"a":{"b":1}}', "{'a': {'b': 1}}"),
    ],
)  # fmt: skip
def test_it_reads_as_code(text: str, shown: str) -> None:
    """Enums by their member, records by their fields, all else as data."""
    assert repr(Unresolved(text, "")) == shown
