"""Checks the arguments of a step's verbs.

Each function returns an argument in the form that the step stores, or raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Required, TypeAlias, TypedDict, cast, get_args

import attrs

from handrail.errors import DefinitionError, WrongUse
from handrail.model.agent_options import (
    NO_OPTIONS,
    NO_SETTINGS,
    AgentOptions,
    AgentSettings,
    with_model,
)
from handrail.model.paths import check_name
from handrail.model.patterns import normal
from handrail.model.policy import ON_ERROR_MODES, count_of, seconds_of
from handrail.model.results import AgentResult, Choice
from handrail.model.sandbox import Boundary, InheritEnv
from handrail.model.shapes import AgentLike, WorkflowLike, is_agent
from handrail.model.work import Task
from handrail.steps.leaves import ShellCommand
from handrail.steps.verbs import MISSING, Context, Stage, Step, Wanted, take
from handrail.typed.jsonsafe import short_repr

if TYPE_CHECKING:
    from handrail.ports.agent import AgentBackend  # costs more than a step may


WORK_MODES = ("continue", "fail_fast")


def argv_of(name: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command."""
    from os import fspath

    try:
        return tuple(fspath(word) for word in argv)
    except TypeError:
        raise WrongUse(
            f"step {name!r}: .command() takes text for the shell or a list of texts, got {argv!r}"
        ) from None


def context_of(name: str, context: object) -> Context:
    """The context of an agent: a mapping, or a function that makes one."""
    if context is None:
        return {}
    if isinstance(context, Mapping):
        mapping = cast("Mapping[str, Any]", context)
        if all(isinstance(key, str) for key in mapping):
            return mapping
    elif callable(context):
        return cast("Context", context)
    raise WrongUse(
        f"step {name!r}: the context is a mapping with names as keys, or a function of the "
        f"WorkflowContext that returns one, got {context!r}"
    )


def stages_of(name: str, given: object) -> tuple[str | Stage, ...]:
    """The stages, or the one; callables that share a name, as lambdas do, get different numbers."""
    items: Sequence[object] = [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        items = cast("Sequence[object]", given)
    made: list[str | Stage] = []
    for item in items:
        stage = _stage(name, item)
        taken = [one if isinstance(one, str) else one.name for one in made]
        if isinstance(stage, Stage) and stage is not item and stage.name in taken:
            stage = Stage(f"{stage.name}-{len(taken) + 1}", stage.check)
        made.append(stage)
    return tuple(made)


def is_named_agent(given: Any) -> bool:
    """True for an agent with a name, which a step needs."""
    return is_agent(given) and isinstance(getattr(given, "name", None), str)


def check_agent(name: str, agent: object) -> None:
    """Raise unless this is an agent."""
    if isinstance(agent, type):
        raise WrongUse(
            f"step {name!r}: .agent() takes an agent, got the class {agent.__name__}. "
            f"Make one of it: {agent.__name__}(...)."
        )
    if not is_named_agent(agent):
        raise WrongUse(
            f"step {name!r}: .agent() takes an agent (it has a name and an async run), "
            f"got {agent!r}. Make one with Agent(name, prompt, backend=...)."
        )


def _stage(name: str, item: object) -> str | Stage:
    if isinstance(item, Stage):
        return item
    if isinstance(item, str):
        return check_name(item, "stage")
    if is_named_agent(item) and not isinstance(item, type):
        agent = cast("AgentLike[Any]", item)
        return Stage(agent.name, _judge(name, agent))
    if callable(item):
        label = getattr(item, "__name__", type(item).__name__)
        return Stage("lambda" if label == "<lambda>" else label, item)
    raise WrongUse(
        f"step {name!r}: a stage is a configured name, a Stage, an agent or a callable, "
        f"got {item!r}"
    )


def workflow_of(name: str, workflow: object) -> WorkflowLike[..., Any]:
    """The workflow, if it is a decorated one."""
    if hasattr(workflow, "definition"):
        return cast("WorkflowLike[..., Any]", workflow)
    raise WrongUse(
        f"step {name!r}: .subworkflow() takes a function decorated with @workflow, got {workflow!r}"
    )


def wanted_of(name: str, what: object, wait: float | timedelta | None) -> Wanted:
    """What ``.holding()`` claims: a text is a name, unless it has the signs of a pattern."""
    wait_s = None if wait is None else seconds_of(wait, f"wait of step {name!r}")
    if isinstance(what, str) and not _SIGNS.intersection(what):
        return Wanted((check_name(what, "claim"),), None, wait_s)
    patterns = patterns_of(name, ".holding()", [what] if isinstance(what, str) else what)
    if not patterns:
        raise DefinitionError(f"step {name!r}: .holding() needs a name or patterns, got {what!r}")
    return Wanted((), patterns, wait_s)


_SIGNS = frozenset("*?[")


def patterns_of(name: str, where: str, given: object) -> tuple[str, ...]:
    """Patterns of files, relative to the repository."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise WrongUse(
            f"step {name!r}: {where} takes a list of patterns such as ['src/**'], "
            f"got {short_repr(given)}"
        )
    patterns = cast("Sequence[object]", given)
    for pattern in patterns:
        if not isinstance(pattern, str) or pattern.removeprefix("!").startswith("/"):
            raise DefinitionError(
                f"step {name!r}: a pattern of {where} is relative to the repository, such as "
                f"'src/**', got {pattern!r}"
            )
        try:
            normal(pattern)
        except DefinitionError as error:
            raise DefinitionError(f"step {name!r}: {error}") from None
    return tuple(map(str, patterns))


def body_of(name: str, body: object) -> Callable[..., Any]:
    """The body: a function that returns a step, or yields steps."""
    if hasattr(body, "definition"):
        raise WrongUse(
            f"step {name!r}: the body is a function that gives a step, got the workflow "
            f"{getattr(body, '__name__', body)}. Write lambda: step({name!r}).run_workflow(...)."
        )
    if callable(body):
        return cast("Callable[..., Any]", body)
    raise WrongUse(
        f"step {name!r}: the body is a function that gives a step, or yields steps, and its "
        f"arguments come behind it, got {short_repr(body)}"
    )


def setup_of(name: str, setup: object) -> Step[Any] | None:
    """The step that runs first in a worktree, from a step or a command."""
    if setup is None:
        return None
    if isinstance(setup, Step):
        take(setup)  # pyright: ignore[reportUnknownArgumentType]  # a step of anything
        return setup  # pyright: ignore[reportUnknownVariableType]
    if isinstance(setup, str) and setup.strip():
        return Step("setup", ShellCommand(setup))
    if isinstance(setup, Sequence) and setup and not isinstance(setup, (str, bytes)):
        return Step("setup", ShellCommand(argv_of(name, cast("Sequence[str]", setup))))
    got = short_repr(setup)  # pyright: ignore[reportUnknownArgumentType]  # it is anything
    raise WrongUse(f"step {name!r}: setup= takes a step or a command, got {got}")


def merge_of(name: str, merge: object) -> str | Callable[..., Any]:
    """How a worktree is merged."""
    if callable(merge) or (isinstance(merge, str) and merge in get_args(Merge)):
        return cast("str | Callable[..., Any]", merge)
    known = ", ".join(map(repr, get_args(Merge)))
    raise DefinitionError(
        f"step {name!r}: merge= is one of {known}, or a function of the worktree, "
        f"got {short_repr(merge)}"
    )


def check_group(
    name: str, on_error: str, max_concurrency: int | None, min_success: float | None
) -> None:
    """Raise unless a group can have these options."""
    if on_error not in ON_ERROR_MODES:
        raise DefinitionError(
            f"step {name!r}: on_error is one of {', '.join(ON_ERROR_MODES)}, got {on_error!r}"
        )
    if max_concurrency is not None:
        count_of(max_concurrency, f"max_concurrency of step {name!r}")
    if min_success is None:
        return
    if on_error != "continue":
        raise DefinitionError(f'step {name!r}: min_success goes with on_error="continue"')
    if isinstance(min_success, bool) or not math.isfinite(min_success) or min_success < 0:
        raise DefinitionError(
            f"step {name!r}: min_success is a count (an int) or a share from 0.0 to 1.0, "
            f"got {min_success!r}"
        )
    if isinstance(min_success, float) and min_success > 1:
        raise DefinitionError(
            f"step {name!r}: min_success as a float is a share from 0.0 to 1.0, got {min_success!r}"
        )


def tasks_of(name: str, tasks: object) -> tuple[Task, ...]:
    """The tasks with which ``.work()`` begins."""
    if isinstance(tasks, Task) or not isinstance(tasks, Iterable) or isinstance(tasks, str):
        raise WrongUse(f"step {name!r}: .work() takes a collection of Tasks, got {tasks!r}")
    found = tuple(cast("Iterable[object]", tasks))
    for one in found:
        if not isinstance(one, Task):
            raise WrongUse(
                f"step {name!r}: .work() takes Tasks, got {one!r}. "
                f"Write Task(id, payload): the id is unique in the work."
            )
    return cast("tuple[Task, ...]", found)


def check_work(
    name: str,
    body: object,
    stop: object,
    *,
    on_error: str,
    max_concurrency: int | None,
    at_most: int | None,
) -> None:
    """Raise unless ``.work()`` can have these options."""
    if not callable(body):
        raise WrongUse(
            f"step {name!r}: the body of .work() is a function of one Task that returns a step or "
            f"yields steps, and gives Found(value, children), got {body!r}"
        )
    if stop is not None and not callable(stop):
        raise WrongUse(
            f"step {name!r}: stop is a function of the Tally that says why to stop, or None, "
            f"got {stop!r}"
        )
    if on_error not in WORK_MODES:
        why = (
            ". What grows is not undone as a whole: with 'continue' look at .failed, and raise"
            if on_error == "all_or_nothing"
            else ""
        )
        raise DefinitionError(
            f"step {name!r}: on_error of .work() is one of {', '.join(WORK_MODES)}, "
            f"got {on_error!r}{why}"
        )
    if max_concurrency is not None:
        count_of(max_concurrency, f"max_concurrency of step {name!r}")
    if at_most is not None:
        count_of(at_most, f"at_most of step {name!r}")


def choices_of(name: str, choices: Collection[Any], default: Any) -> tuple[Any, ...]:
    """The choices of a question."""
    offered = tuple(choices)
    texts = [str(choice) for choice in offered]
    if not offered or isinstance(choices, str):
        raise DefinitionError(f"step {name!r}: choices is a list of one or more, got {choices!r}")
    if any(isinstance(choice, Choice) for choice in offered):
        raise DefinitionError(f"step {name!r}: write choices={{label: Choice(...)}}, by label")
    if isinstance(choices, Mapping) and not all(isinstance(one, str) for one in offered):
        raise DefinitionError(f"step {name!r}: the labels of choices are texts, got {offered!r}")
    if len(set(texts)) != len(texts):
        raise DefinitionError(f"step {name!r}: two choices look alike as text: {texts}")
    if default is not MISSING and default not in offered:
        raise DefinitionError(
            f"step {name!r}: the default {default!r} is not among the choices {texts}"
        )
    return offered


def agent_settings(
    name: str,
    backend: AgentBackend | str | None,
    model: str | None,
    options: AgentOptions,
    session: str | AgentResult[Any] | None,
    *,
    fork: bool,
    writes: Sequence[str] | None,
    worktree: bool,
    check: AgentLike[Any] | Callable[..., Any] | None = None,
) -> AgentSettings:
    """The settings of an agent step.

    Raises:
        WrongUse, DefinitionError: a setting is of the wrong kind, or two contradict each other.
    """
    if (
        (backend, model, session, writes, check) == (None, None, None, None, None)
        and options is NO_OPTIONS
        and not fork
        and not worktree
    ):
        return NO_SETTINGS
    if (
        backend is not None
        and not isinstance(backend, str)
        and not callable(getattr(backend, "complete", None))
    ):
        raise WrongUse(
            f'step {name!r}: backend= takes a backend or the name of one, such as "claude", '
            f"got {short_repr(backend)}"
        )
    if not isinstance(options, AgentOptions):
        raise WrongUse(
            f"step {name!r}: options= takes AgentOptions(...), got {short_repr(options)}"
        )
    earlier = _session(name, session)
    if fork and earlier is NO_SETTINGS:
        raise DefinitionError(f"step {name!r}: fork=True needs session=, which is to be copied")
    return attrs.evolve(
        earlier,
        backend=backend,
        options=with_model(model, options, f"step {name!r}"),
        fork=fork,
        writes=None if writes is None else patterns_of(name, "writes=", writes),
        worktree=worktree,
        check=_judge(name, check),
    )


def _judge(name: str, check: Any) -> Any:
    """What judges an answer, if it can."""
    if check is None or isinstance(check, type):
        pass
    elif is_named_agent(check):
        if getattr(check, "output", None) is not str:
            return check
        raise WrongUse(
            f"step {name!r}: agent {check.name!r} answers with text, which is no verdict. Say "
            f"Agent(..., output=bool), or a class with `passed: bool` and `reason: str`."
        )
    elif callable(check):
        return check
    if check is None:
        return None
    raise WrongUse(
        f"step {name!r}: check= takes a function of the answer, or an agent, got {check!r}"
    )


def _session(name: str, given: object) -> AgentSettings:
    """The settings of the session to continue, from an id or the result of an agent."""
    if given is None:
        return NO_SETTINGS
    if isinstance(given, AgentResult):
        if given.session is None:
            raise DefinitionError(
                f"step {name!r}: session= was given the result of an agent that has no session"
                + (f": backend {given.backend!r} keeps none" if given.backend else "")
            )
        return AgentSettings(
            session=given.session,
            session_usage=given.session_usage,
            session_backend=given.backend or "",
        )
    if isinstance(given, str) and given.strip():
        return AgentSettings(session=given)
    raise WrongUse(
        f"step {name!r}: session= takes the result of an earlier agent step, or the id of a "
        f"session, got {short_repr(given)}"
    )


Merge: TypeAlias = Literal["ff", "merge", "keep"]
"""What becomes of the commits of a worktree."""


class Raising(TypedDict, total=False):
    """The options of a group that fails when a member does."""

    on_error: Literal["fail_fast", "all_or_nothing"]
    max_concurrency: int | None
    min_success: float | None


class Continuing(TypedDict, total=False):
    """The options of a group whose output has a ``StepResult`` for each member."""

    on_error: Required[Literal["continue"]]
    max_concurrency: int | None
    min_success: float | None


class Program(TypedDict, total=False):
    """The options of ``.command()`` that do not decide the type of its output."""

    cwd: Any
    env: Mapping[str, str] | None
    stdin: str | bytes | None
    check: bool
    sandbox: Boundary
    inherit_env: InheritEnv | None


class Launching(TypedDict, total=False):
    """The options of ``.agent()`` that do not decide the type of its output."""

    backend: AgentBackend | str | None
    model: str | None
    options: AgentOptions
    session: str | AgentResult[Any] | None
    fork: bool
    writes: Sequence[str] | None
    worktree: bool
    check: AgentLike[Any] | Callable[..., Any] | None
