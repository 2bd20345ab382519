"""Recorded values whose class is not found here; apart from the codec, which is slower to load."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from handrail.errors import HandrailError
from handrail.model.dataclass import dataclass


class Unresolvable(HandrailError):
    """The class of a recorded value was not found, or (``misfit``) cannot be built from the record.

    ``path`` is the path of the step whose output it is, ``parameter`` the workflow's parameter
    whose input it is; both are empty for any other value.
    """

    def __init__(
        self, tag: str, why: str, path: str = "", *, misfit: bool = False, parameter: str = ""
    ) -> None:
        super().__init__(tag, why, path)
        self.tag = tag
        self.why = why
        self.path = path
        self.misfit = misfit
        self.parameter = parameter

    def __str__(self) -> str:
        where, declared = "", ""
        if self.path:
            where, declared = f"step {self.path!r}: ", "the step's output"
        elif self.parameter:
            where, declared = f"input {self.parameter!r}: ", "the workflow's parameter"
        fits = "so that what was recorded fits it again (a field that is new needs a default)"
        ways = [
            f"Change the class {fits}"
            if self.misfit
            else "Import its module before the run is resumed"
        ]
        if declared and not self.misfit:
            ways.append(f"declare it as the type of {declared}")
        if self.path:
            ways.append(f"run the step again: rerun=[{self.path!r}] (--rerun)")
        said = ", ".join(ways[:-1]) + ", or " + ways[-1] if len(ways) > 1 else ways[0]
        return f"{where}a recorded value of {self.tag} cannot be read: {self.why}. {said}."


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A recorded value whose class was not found: its text, and the tag that is not known here."""

    text: str
    tag: str

    @property
    def data(self) -> Any:
        """The recorded data, without the names of classes."""
        return _untagged(json.loads(self.text))

    def __repr__(self) -> str:
        """As the class itself might have it: ``Color.RED``, ``Plan(title='t', steps=['a'])``."""
        return _as_code(json.loads(self.text))


def _untagged(node: Any) -> Any:
    if type(node) is list:
        return [_untagged(one) for one in cast("Iterable[Any]", node)]
    if type(node) is not dict:
        return node
    parts = {key: _untagged(one) for key, one in cast("dict[str, Any]", node).items()}
    if parts.pop("$", None) is not None and parts.keys() in ({"v"}, {"name"}):
        return next(iter(parts.values()))
    return parts


def _as_code(node: Any) -> str:
    if type(node) is list:
        return f"[{', '.join(map(_as_code, cast('Iterable[Any]', node)))}]"
    if not isinstance(node, dict):
        return repr(node)
    known = dict(cast("dict[str, Any]", node))
    name = str(known.pop("$", "")).rpartition(":")[2].rpartition(".")[2]
    if name and set(known) == {"name"}:
        return f"{name}.{known['name']}"
    from handrail.codec.builtins import PAIRED

    if name in PAIRED and "v" in known:
        items = ", ".join(f"{_as_code(key)}: {_as_code(value)}" for key, value in known["v"])
        return f"{{{items}}}" if name == "dict" else f"{name}({{{items}}})"
    if name == "tuple":
        items = ", ".join(map(_as_code, known["v"]))
        return f"({items},)" if len(known["v"]) == 1 else f"({items})"
    if name and set(known) == {"v"}:
        return f"{name}({_as_code(known['v'])})"
    if name:
        return f"{name}({', '.join(f'{key}={_as_code(one)}' for key, one in known.items())})"
    return f"{{{', '.join(f'{key!r}: {_as_code(one)}' for key, one in known.items())}}}"
