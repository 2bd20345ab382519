"""The fingerprint of a step: a text that can be compared with the recorded one.

It covers what determines the step's output, as far as the workflow says: the verb, the callable by
name, its arguments, a command and its folder, an agent's prompt and output, a child's inputs, the
mode of a group. It leaves out function bodies, modifiers, environment, time limits, and an agent's
backend and options: these may change between two drives of a run.

People read the text too: a mismatch shows it. A long text is cut, and gets a digest of the whole.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from handrail.secrets.tokens import without_tokens
from handrail.secrets.values import mask_text
from handrail.steps import verbs
from handrail.steps.verbs import Step
from handrail.typed.reference import reference

if TYPE_CHECKING:
    from handrail.codec.codec import Codec

_LONGEST = 160
_KEPT = 120


Identity = Callable[[Any], str]
"""A text that is the same for equal values."""


def fingerprint(step: Step[Any], codec: Codec, secrets: Mapping[str, str] | None = None) -> str:
    """The step's verb and its arguments, on one line; equal for equal steps.

    Names replace the values of ``secrets``, so that a renewed secret does not change the text.
    """
    verb, identity = step.verb, codec.identity
    if type(verb) is verbs.PythonCall and not verb.kwargs:  # most steps; the same text, but faster
        action, args = verb.action, verb.args
        named = reference(action) if type(action) is FunctionType else _callable(action, identity)
        return short(f"python {named} {identity(list(args)) if args else '[]'}", secrets)
    return short(_described(verb, identity), secrets)


def matches(
    recorded: str, step: Step[Any], codec: Codec, secrets: Mapping[str, str] | None = None
) -> bool:
    """True if the step has the recorded fingerprint.

    The fast path masks no secrets: a text that equals the recorded one has none to mask.
    """
    verb = step.verb
    if type(verb) is verbs.PythonCall and not verb.kwargs and type(verb.action) is FunctionType:
        said = codec.identity(list(verb.args)) if verb.args else "[]"
        if recorded == f"python {reference(verb.action)} {said}":
            return True
    return recorded == fingerprint(step, codec, secrets)


def item_digest(item: Any, codec: Codec, secrets: Mapping[str, str] | None = None) -> str:
    """A member's item as a text that can be compared with the recorded one."""
    return short(codec.identity(item), secrets)


def short(text: str, secrets: Mapping[str, str] | None = None) -> str:
    """The text without secrets: all of it, or its beginning and a digest of the whole."""
    text = mask_text(text, secrets) if secrets else without_tokens(text)
    if len(text) <= _LONGEST:
        return text
    import hashlib  # 2 ms that most processes need not pay

    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:_KEPT]}... #{digest}"


def _described(verb: verbs.Verb, identity: Identity) -> str:  # noqa: C901, PLR0911, PLR0912  # one case a verb
    """The fingerprint before it is masked or cut."""
    match verb:
        case verbs.PythonCall():
            said = f"python {_callable(verb.action, identity)} {identity(list(verb.args))}"
            return f"{said} {identity(dict(verb.kwargs))}" if verb.kwargs else said
        case verbs.ShellCommand():
            place = "" if verb.cwd is None else f" in {verb.cwd}"
            parsed = "" if verb.parse is None else f" as {_type(verb.parse)}"
            argv = verb.argv if isinstance(verb.argv, str) else list(verb.argv)
            return f"command {identity(argv)}{place}{parsed}"
        case verbs.AgentCall():
            what = "answer" if verb.answers else "agent"
            said = f"{what} {_agent(verb.agent, identity)} {_context(verb.context, identity)}"
            judge = verb.settings.check
            return said if judge is None else f"{said} check {_performer(judge, identity)}"
        case verbs.Generation():
            return f"generate {_generator(verb, identity)} {_context(verb.context, identity)}"
        case verbs.StageCheck():
            return f"stage {_stage(verb.stage, identity)}"
        case verbs.Validation():
            stages = None if verb.stages is None else [_stage(s, identity) for s in verb.stages]
            return f"validate {identity(stages)}"
        case verbs.ChildWorkflow():
            return _child(verb, identity)
        case verbs.ScopedBody():
            return f"scope {verb.function}"
        case verbs.HeldBody():
            wanted = [*verb.wanted.names, *(verb.wanted.patterns or ())]
            called = f"{_callable(verb.body, identity)} {identity(list(verb.args))}"
            return f"holding {identity(wanted)} {called}"
        case verbs.TreeBody():
            called = f"{_callable(verb.body, identity)} {identity(list(verb.args))}"
            return f"worktree {called} {verb.base or 'HEAD'} {_merge(verb, identity)}"
        case verbs.TreeWork():
            return f"git {verb.action} {verb.base or 'HEAD'} {_merge(verb, identity)}"
        case verbs.Branching():
            return f"branch {identity([arm.name for _, arm in verb.arms])}"
        case verbs.ParallelGroup():
            return f"parallel {verb.on_error} {identity([step.name for step in verb.steps])}"
        case verbs.ForEachGroup():
            return f"for_each {verb.on_error} {_callable(verb.body, identity)}"
        case verbs.WorkGroup():
            return f"work {verb.on_error} {_callable(verb.body, identity)}"
        case verbs.RaceGroup():
            return f"race {identity([step.name for step in verb.steps])}"
        case verbs.Question():
            offered = identity(list(verb.choices))
            offered += identity(list(verb.values)) if verb.values else ""
            return f"ask {identity(verb.question)} {offered} {_type(verb.type)}"
        case verbs.SignalWait():
            return f"wait_for {verb.signal} {_type(verb.type)}"
        case verbs.Pause():
            return "sleep"


def _child(verb: verbs.ChildWorkflow, identity: Identity) -> str:
    """A child with its inputs by name."""
    definition, args, named = verb.workflow.definition, verb.args, dict(verb.kwargs)
    with contextlib.suppress(TypeError):  # the child refuses them when it begins
        args, named = (), dict(definition.signature.bind(*args, **named).arguments)
    said = f"subworkflow {definition.name} {identity(list(args))}"
    return f"{said} {identity(named)}" if named else said


def _callable(target: Any, identity: Identity) -> str:
    """A callable by its name: a partial with the arguments it binds, a workflow by its function."""
    definition = getattr(target, "definition", None)
    if definition is not None:
        target = definition.function
    named = reference(target)
    if not isinstance(target, functools.partial):
        return named
    args, keywords = _bound(target)
    return f"{named} {identity(args)} {identity(keywords)}"


def _merge(verb: verbs.TreeBody | verbs.TreeWork, identity: Identity) -> str:
    return verb.merge if isinstance(verb.merge, str) else _callable(verb.merge, identity)


def _bound(target: Any) -> tuple[list[Any], dict[str, Any]]:
    return list(target.args), target.keywords


def _agent(agent: Any, identity: Identity) -> str:
    """The agent's name, and its ``identity`` (its prompt and output), if it has one."""
    described: Callable[[], Any] | Any = getattr(agent, "identity", None)
    if callable(described):
        described = described()
    return agent.name if described is None else f"{agent.name} {identity(described)}"


def _generator(verb: verbs.Generation, identity: Identity) -> str:
    return _performer(verb.generator, identity)


def _performer(given: Any, identity: Identity) -> str:
    """An agent, or a function in its place."""
    is_agent = callable(getattr(given, "run", None))
    return _agent(given, identity) if is_agent else _callable(given, identity)


def _context(context: Any, identity: Identity) -> str:
    return _callable(context, identity) if callable(context) else identity(dict(context))


def _stage(stage: str | verbs.Stage, identity: Identity) -> str:
    if isinstance(stage, str):
        return stage
    check = stage.check
    is_text = isinstance(check, (str, list, tuple))
    said = identity(check) if is_text else _performer(check, identity)
    return f"{stage.name}: {said}"


def _type(type_: Any) -> str:
    from handrail.typed.schema import describe_type

    try:
        return describe_type(type_)
    except Exception:  # noqa: BLE001  # a type that cannot be described has a name at least
        return getattr(type_, "__qualname__", repr(type_))
