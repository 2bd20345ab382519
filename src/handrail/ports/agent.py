"""The port through which a backend answers an agent's prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from handrail.model.agent_options import NO_OPTIONS, WATCHDOGS, AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import Notice
from handrail.model.results import Usage


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do besides answering a prompt.

    ``options`` are the names of the ``AgentOptions`` that it honours, ``permissions`` the levels
    that it can enforce. ``sessions``: it can continue a session; ``fork``: it can continue a copy
    of one; ``compact``: it can shrink a session on request; ``chooses_session``: the caller can
    choose the id of a new session. ``schema``: it makes the model fit a JSON schema. ``profiles``:
    its models may be named ``profile@model``. ``usage``, ``cost``, ``reset_times``: its replies and
    errors report them.
    """

    options: frozenset[str] = frozenset()
    permissions: frozenset[str] = frozenset()
    sessions: bool = False
    fork: bool = False
    compact: bool = False
    chooses_session: bool = False
    schema: bool = False
    profiles: bool = False
    usage: bool = False
    cost: bool = False
    reset_times: bool = False

    def lacking(self, options: AgentOptions) -> tuple[str, ...]:
        """Descriptions of the given options that it cannot honour, in the order of their names."""
        honoured = self.options | WATCHDOGS
        missing = [name for name in options.given if name not in honoured]
        asked = options.permission if "permission" in self.options else None
        if asked is not None and asked not in self.permissions:
            missing.append(f"permission={asked!r}")
        profile, _ = options.profile_and_model
        if profile is not None and "model" in self.options and not self.profiles:
            missing.append(f"the profile in model={options.model!r}")
        return tuple(missing)


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One prompt for a backend.

    ``session`` is the id from an earlier reply, to continue that session (with ``fork``: a copy of
    it). ``session_usage`` is that session's total so far as its backend counts it, if known.
    ``compact``: shrink that session before the prompt. ``turn`` counts from 1 within a step.
    ``schema`` is the JSON schema that the answer must fit, for backends that can enforce one.
    ``context`` are the values that the prompt was rendered from. ``options`` are complete: the
    options in force for this turn. ``mark`` identifies the run's processes (empty: the run's id).
    ``launch`` counts the step's launches over all attempts and drives (0: not known). ``boundary``
    is the sandbox that a program must be started in, made of ``options.sandbox`` and the step.
    """

    agent: str
    prompt: str
    run_id: str
    path: str
    turn: int = 1
    session: str | None = None
    schema: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    emit: Callable[[Notice], None] = lambda _: None
    sleep: Callable[[float], Any] | None = None
    options: AgentOptions = NO_OPTIONS
    fork: bool = False
    compact: bool = False
    session_usage: Usage | None = None
    now: Callable[[], float] | None = None
    mark: str = ""
    launch: int = 0
    boundary: Any = None

    @property
    def marker(self) -> str:
        """The marker that the processes of this turn carry in their environment."""
        return f"{self.mark or self.run_id}/{self.path}"


@dataclass(frozen=True, slots=True)
class AgentReply:
    """A backend's answer as text, with what is known of model, session and usage.

    ``value`` is the backend's own structured answer, valid if ``has_value``. ``usage`` is this
    turn's alone, ``session_usage`` the session's total so far. ``stop_reason`` is the backend's
    word for why the turn ended, ``denials`` are the actions it refused to the model,
    ``files_changed`` the files that it reports as changed, ``version`` the program's.
    """

    text: str
    model: str | None = None
    session: str | None = None
    usage: Usage | None = None
    value: Any = None
    has_value: bool = False
    session_usage: Usage | None = None
    stop_reason: str | None = None
    denials: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What is known of a backend on this machine, found without a call to a model.

    ``logged_in`` is None if the backend cannot tell. ``advice`` says what to do if the backend is
    not usable now.
    """

    found: bool
    version: str | None = None
    where: str | None = None
    logged_in: bool | None = None
    advice: str = ""


class AgentBackend(Protocol):
    """Carries an agent out: a program, a model API, a script of replies.

    ``complete`` returns only an answer that the backend itself declared complete; anything else is
    an exception. To cancel it, cancel its task: nothing of it runs afterwards. While it works it
    emits notices, each with the path of its turn: the session (``AgentSessionStarted``) as soon as
    it is known, messages, reasoning, tools, retries, compactions, limits, permissions, usage, and
    last ``AgentFinished``, also when it fails.

    A backend may also have ``capabilities`` (a ``Capabilities``; without it, only prompts and
    sessions are used) and ``async probe() -> Probe``. Contract suite:
    ``handrail.testing.contracts.BackendContract``.
    """

    @property
    def name(self) -> str: ...

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The reply to one prompt.

        Raises:
            AgentError: the backend gave no complete answer; it has the reason and ``kind``.
        """
        ...


DEFAULT_CAPABILITIES = Capabilities(sessions=True)


def capabilities_of(backend: AgentBackend) -> Capabilities:
    """The capabilities that a backend declares. Without any, handrail assumes that it answers
    prompts and continues the sessions that its replies name.
    """
    return getattr(backend, "capabilities", DEFAULT_CAPABILITIES)
