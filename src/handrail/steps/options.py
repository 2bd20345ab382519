"""The options of verbs that their overloads share: each group of them is written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, TypeAlias, TypedDict

from handrail.model.agent_options import AgentOptions
from handrail.model.results import AgentResult

if TYPE_CHECKING:
    from handrail.ports.agent import AgentBackend  # noqa: TC004  # costs more than a step may


Merge: TypeAlias = Literal["ff", "merge", "keep"]
"""What becomes of the commits of a worktree."""


class Raising(TypedDict, total=False):
    """The options of a group that fails when a member does."""

    on_error: Literal["fail_fast", "all_or_nothing"]
    max_concurrency: int | None
    min_success: float | None


class Continuing(TypedDict, total=False):
    """The options of a group whose output tells of each member how it ended."""

    on_error: Required[Literal["continue"]]
    max_concurrency: int | None
    min_success: float | None


class Program(TypedDict, total=False):
    """The options of ``.command()`` that do not decide the type of its output."""

    cwd: Any
    env: Mapping[str, str] | None
    stdin: str | bytes | None
    check: bool


class Launching(TypedDict, total=False):
    """The options of ``.agent()`` that do not decide the type of its output."""

    backend: AgentBackend | str | None
    model: str | None
    options: AgentOptions
    session: str | AgentResult[Any] | None
    fork: bool
    writes: Sequence[str] | None
    worktree: bool
