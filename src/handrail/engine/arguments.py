"""What an executor is given, refused where it is written if it is of the wrong kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from handrail.errors import WrongUse
from handrail.model.agent_options import AgentOptions
from handrail.model.definition import WorkflowDefinition
from handrail.model.policy import Budget, Limits, Secrets, count_of, seconds_of
from handrail.typed.jsonsafe import short_repr

_MAPPINGS = {
    "agents": "a mapping of names to agents, such as {'worker': agent}",
    "stages": "a mapping of names to commands or functions, such as {'lint': 'ruff check'}",
    "services": "a mapping of names to objects, such as {'db': db}",
    "config": "a mapping of names to settings, such as {'style': 'terse'}",
}
_LISTS = {
    "sinks": "a list of sinks, such as [ConsoleSink()]",
    "workflows": "a list of workflows, such as [ship]",
}
_KNOWN_BY = {
    "journal": (("append", "acquire", "events"), "a journal, such as SqliteJournal('runs.db')"),
    "clock": (("now", "wait", "sleep"), "a clock, such as handrail.testing.JumpClock()"),
    "cassette": (("wrapper",), "a cassette, such as handrail.testing.cassette('recordings')"),
}
"""The methods of a part, and what to pass."""
_OF_CLASS: Mapping[str, tuple[type, str]] = {
    "limits": (Limits, "Limits(...), such as Limits(max_steps=1000)"),
    "secrets": (Secrets, "Secrets(...), such as Secrets(names=('DB_URL',))"),
    "agent_options": (AgentOptions, "AgentOptions(...)"),
    "model": (str, "the name of a model"),
    "durable": (bool, "True or False"),
}
_SECONDS = ("linger_s", "suspend_timers_after_s", "cleanup_timeout_s")


def check_arguments(given: Mapping[str, Any]) -> None:
    """Do nothing for arguments of ``Executor`` of the right kinds; None is none given.

    Raises:
        WrongUse: one is of another kind; the text says what to pass.
        DefinitionError: a time or a count is out of its range.
    """
    for name, value in given.items():
        if value is None:
            continue
        if name in _MAPPINGS:
            _check_mapping(name, value)
        elif name in _LISTS:
            _check_list(name, value)
        elif name in _SECONDS:
            seconds_of(value, f"{name} of an Executor")
        elif name == "max_crashes":
            count_of(value, f"{name} of an Executor")
        else:
            _check_part(name, value)


def _check_mapping(name: str, value: object) -> None:
    wanted = _MAPPINGS[name]
    if not isinstance(value, Mapping):
        raise _wrong(name, wanted, value)
    for key in cast("Mapping[object, object]", value):
        if not isinstance(key, str):
            raise _wrong(name, wanted, key)


def _check_list(name: str, value: object) -> None:
    wanted = _LISTS[name]
    if not _is_list(value):
        raise _wrong(name, wanted, value)
    if name == "workflows" and isinstance(value, Collection):
        for one in cast("Collection[object]", value):
            if not isinstance(getattr(one, "definition", None), WorkflowDefinition):
                raise _wrong(name, wanted, one)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _check_part(name: str, value: object) -> None:
    if name == "limits" and isinstance(value, Budget):
        raise WrongUse(
            "limits= of an Executor takes Limits(...), got a Budget. "
            "Write limits=Limits(budget=Budget(...))."
        )
    if name in _OF_CLASS:
        kind, wanted = _OF_CLASS[name]
        known = isinstance(value, kind)
    else:
        methods, wanted = _KNOWN_BY[name]
        has_all = all(callable(getattr(value, method, None)) for method in methods)
        known = has_all and not isinstance(value, type)
    if not known:
        raise _wrong(name, wanted, value)


def _wrong(name: str, wanted: str, got: object) -> WrongUse:
    return WrongUse(f"{name}= of an Executor takes {wanted}, got {short_repr(got)}")
