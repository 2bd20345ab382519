"""What the package says of itself is what its sessions show."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def of_noxfile(*names: str) -> list[Any]:
    """The values of constants of the noxfile."""
    known: dict[str, Any] = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            try:
                values = eval(compile(ast.Expression(node.value), "noxfile", "eval"), {}, known)
            except (NameError, AttributeError):  # it needs nox, or a function
                continue
            names_of = target.elts if isinstance(target, ast.Tuple) else [target]
            several = values if isinstance(target, ast.Tuple) else [values]
            known.update(zip(map(ast.unparse, names_of), several, strict=True))
    return [known[name] for name in names]


def test_classifiers_name_the_pythons_that_were_tried() -> None:
    """Each Python of a classifier has run tests, or all that the base needs comes in wheels."""
    (installs_on,) = of_noxfile("INSTALLS_ON")
    prefix = "Programming Language :: Python :: "
    named = {name.removeprefix(prefix) for name in PROJECT["classifiers"] if prefix in name}
    assert named == {"3 :: Only"} | {name for name in installs_on if not name.endswith("t")}


def test_fast_is_no_part_of_the_base() -> None:
    """The libraries that the sessions without `fast` look for are those that `fast` brings."""
    (fast,) = of_noxfile("FAST")
    extra = PROJECT["optional-dependencies"]["fast"]
    assert sorted(line.partition(">")[0].replace("-", "_") for line in extra) == sorted(fast)
    assert not any(
        name.startswith(("orjson", "ormsgpack", "ahocorasick"))
        for name in (PROJECT["dependencies"])
    )
