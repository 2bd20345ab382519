"""Which results a step may see: those of its own generator and of the enclosing ones.

The rule depends on paths alone, so it does not depend on which step finished first. Let ``a`` be
the longest common part of the viewer's path and a result's path. If ``a`` is a group whose members
run side by side, the result belongs to a sibling and is not shown; else everything recorded below
``a`` came before the viewer's own yield.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from handrail.model.results import StepResult


class VisibleResults(Mapping[str, StepResult[Any]]):
    """The results by full path that the step at ``viewer`` may see; a live, read-only view."""

    __slots__ = ("_concurrent", "_results", "_viewer")

    def __init__(
        self,
        results: Mapping[str, StepResult[Any]],
        concurrent: Container[str],
        viewer: str,
    ) -> None:
        self._results = results
        self._concurrent = concurrent
        self._viewer = viewer

    def __getitem__(self, path: str) -> StepResult[Any]:
        result = self._results[path]
        if not self._is_visible(path):
            raise KeyError(path)
        return result

    def __iter__(self) -> Iterator[str]:
        return (path for path in list(self._results) if self._is_visible(path))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, path: str) -> StepResult[Any] | None:
        """The result by name, searched from the viewer outward, or by ``/path`` from the root."""
        if path.startswith("/"):
            return self.get(path[1:])
        scope = self._viewer
        while scope:
            scope = scope.rpartition("/")[0]
            found = self.get(f"{scope}/{path}" if scope else path)
            if found is not None:
                return found
        return None

    def _is_visible(self, path: str) -> bool:
        scope = common_scope(self._viewer, path)
        return scope == self._viewer or scope not in self._concurrent


def common_scope(one: str, other: str) -> str:
    """The longest path that both paths lie below, or at; empty for the root."""
    end = 0
    for a, b in zip(one.split("/"), other.split("/"), strict=False):
        if a != b:
            break
        end += len(a) + 1
    return one[: max(0, end - 1)]
