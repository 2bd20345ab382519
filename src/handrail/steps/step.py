"""``step(name)`` and its verbs.

The verbs are typed so that ``yield from step(...).verb(...)`` has the type of the step's output
under mypy --strict and pyright strict; ``tests/typing`` checks this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import MAXYEAR, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

import attrs

from handrail.errors import DefinitionError, WrongUse, did_you_mean
from handrail.later import later
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.paths import check_name, encode_key
from handrail.model.policy import (
    OnError,
    count_of,
    positive_seconds,
    seconds_of,
)
from handrail.model.results import (
    AgentResult,
    BranchResult,
    CommandResult,
    StepResult,
    ValidationResult,
    WorkflowResult,
)
from handrail.model.sandbox import Boundary, InheritEnv, boundary_of, inherited_of
from handrail.model.shapes import AgentLike, OwnTree, WorkflowLike
from handrail.model.work import Found, StopRule, Task, Work
from handrail.steps.leaves import AgentCall, Generation, PythonCall, ShellCommand
from handrail.steps.verbs import MISSING, Context, Predicate, Stage, Step, Steps, Verb, take

if TYPE_CHECKING:
    from handrail.ports.agent import AgentBackend
    from handrail.steps import arguments, bodies, groups, waits
    from handrail.steps.arguments import Continuing, Launching, Merge, Program, Raising
else:
    later(globals(), "steps.arguments steps.bodies steps.groups steps.waits")


P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
T7 = TypeVar("T7")
T8 = TypeVar("T8")

EightSteps: TypeAlias = tuple[
    Step[T], Step[T], Step[T], Step[T], Step[T], Step[T], Step[T], Step[T]
]
NineOrMore: TypeAlias = tuple[*EightSteps[T], Step[T], *tuple[Step[T], ...]]


_STEP_AS_VALUE = (
    "step {name!r}: {verb} got the step {got!r} as an argument, and it never ran. Write "
    "`value = yield from step(...)...`, and pass the value."
)


def step(name: str) -> StepName:
    """Name a step, whose verb follows: ``step("plan").agent(...)``, ``step("x").call(f, 1)``.

    A ``/`` in the name becomes ``%2F``, as in the keys of ``for_each``: ``/`` separates the parts
    of a path.

    Raises:
        DefinitionError: the name is not 1 to 120 printable characters.
    """
    if isinstance(name, str) and "/" in name:
        name = encode_key(name)
    return StepName(check_name(name))


@attrs.frozen(repr=False)
class StepName:
    """A step that has no verb yet."""

    name: str

    def __repr__(self) -> str:
        return f"step({self.name!r}) without a verb"

    if not TYPE_CHECKING:

        def __iter__(self) -> Any:
            """Yield this object, so that the run can report the forgotten verb."""
            return (yield self)

        def __getattr__(self, word: str) -> Any:
            """Raise an error that names a similar verb, or says that a modifier follows a verb."""
            if word.startswith("_") or word == "name":  # unset while it is copied or unpickled
                raise AttributeError(word)
            verbs = [var for var in vars(StepName) if not var.startswith("_") and var != "name"]
            meant = did_you_mean([word], verbs).replace("'", "`") or f" Verbs: {', '.join(verbs)}."
            if hasattr(Step, word):
                meant = f" It follows a verb: step({self.name!r}).call(...).{word}(...)."
            raise AttributeError(f"step {self.name!r}: there is no verb {word!r}.{meant}")

    # -- python and call ------------------------------------------------------------------------

    @overload
    def python(self, action: Callable[[], Awaitable[T]]) -> Step[T]: ...
    @overload
    def python(self, action: Callable[[], T]) -> Step[T]: ...
    @overload
    def python(
        self, action: Callable[[*Ts], Awaitable[T]], args: tuple[*Ts], kwargs: None = None
    ) -> Step[T]: ...
    @overload
    def python(
        self, action: Callable[[*Ts], T], args: tuple[*Ts], kwargs: None = None
    ) -> Step[T]: ...
    @overload
    def python(
        self, action: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Step[T]: ...
    @overload
    def python(
        self, action: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Step[T]: ...
    @overload
    def python(
        self,
        action: Callable[..., Awaitable[T]],
        args: tuple[Any, ...] = ...,
        *,
        kwargs: Mapping[str, Any],
    ) -> Step[T]: ...
    @overload
    def python(
        self, action: Callable[..., T], args: tuple[Any, ...] = ..., *, kwargs: Mapping[str, Any]
    ) -> Step[T]: ...
    def python(
        self,
        action: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Step[Any]:
        """Call ``action(*args, **kwargs)``, sync (in a thread) or async, for its result."""
        if not isinstance(args, (tuple, list)):
            raise WrongUse(
                f"step {self.name!r}: .python(action, args) takes the arguments as a tuple, got "
                f"{args!r}. Write args=({args!r},), or .call(action, {args!r})."
            )
        return self._call(action, tuple(args), dict(kwargs) if kwargs else None, ".python()")

    @overload
    def call(
        self, action: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Step[T]: ...
    @overload
    def call(self, action: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Step[T]: ...
    def call(self, action: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Step[Any]:
        """Call ``action(*args, **kwargs)``: ``python`` with its arguments checked by type."""
        return self._call(action, args, kwargs or None, ".call()")

    def _call(
        self,
        action: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        verb: str,
    ) -> Step[Any]:
        if not callable(action):
            hint = (
                "Leave the parentheses of the call off: .call(f, 1), not .call(f(1))."
                if not isinstance(action, str)
                else "For a program use .command()."
            )
            raise WrongUse(f"step {self.name!r}: {verb} takes a callable, got {action!r}. {hint}")
        for value in args:
            if type(value) is Step:
                raise WrongUse(_STEP_AS_VALUE.format(name=self.name, verb=verb, got=value.name))
        return Step(self.name, PythonCall(action, args, kwargs))

    # -- programs and agents --------------------------------------------------------------------

    @overload
    def command(
        self, argv: str | Sequence[str], *, parse: None = None, **program: Unpack[Program]
    ) -> Step[CommandResult[None]]: ...
    @overload
    def command(
        self, argv: str | Sequence[str], *, parse: type[T], **program: Unpack[Program]
    ) -> Step[CommandResult[T]]: ...
    @overload
    def command(
        self, argv: str | Sequence[str], *, parse: Any, **program: Unpack[Program]
    ) -> Step[CommandResult[Any]]: ...
    def command(
        self,
        argv: str | Sequence[str],
        *,
        cwd: Any = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        check: bool = True,
        parse: Any = None,
        sandbox: Boundary = None,
        inherit_env: InheritEnv | None = None,
    ) -> Step[CommandResult[Any]]:
        """Run a program: a list of arguments, or one text for the shell.

        ``env`` is added to this process's environment. ``check``: an exit code other than 0 fails
        the step. ``parse=T``: stdout is JSON of type ``T`` and becomes ``.data``. ``sandbox``: the
        boundary that the kernel keeps around it, a ``Sandbox``, or True for one that follows from
        the step. ``inherit_env``: ``"safe"`` leaves out variables that look like secrets (as in
        any sandbox), ``"all"`` none (as without), a list all but these.
        """
        words = argv if isinstance(argv, str) else arguments.argv_of(self.name, argv)
        if not words:
            raise DefinitionError(f"step {self.name!r}: .command() needs a program, got {argv!r}")
        boundary_of(sandbox, f"step {self.name!r}: sandbox")
        inherits = inherited_of(inherit_env, f"step {self.name!r}: inherit_env")
        return Step(
            self.name, ShellCommand(words, cwd, env, stdin, check, parse, sandbox, inherits)
        )

    @overload
    def agent(
        self, agent: AgentLike[T], context: Context | None = None, **launch: Unpack[Launching]
    ) -> Step[AgentResult[T]]: ...
    @overload
    def agent(
        self,
        agent: AgentLike[T],
        context: Context | None = None,
        *,
        default: V,
        **launch: Unpack[Launching],
    ) -> Step[AgentResult[T | V]]: ...
    def agent(
        self,
        agent: AgentLike[Any],
        context: Context | None = None,
        *,
        backend: AgentBackend | str | None = None,
        model: str | None = None,
        options: AgentOptions = NO_OPTIONS,
        session: str | AgentResult[Any] | None = None,
        fork: bool = False,
        writes: Sequence[str] | None = None,
        worktree: bool = False,
        check: AgentLike[Any] | Callable[..., Any] | None = None,
        default: Any = MISSING,
    ) -> Step[AgentResult[Any]]:
        """Give the agent its context (a mapping, or a function of the ``WorkflowContext``).

        ``backend``, ``model`` and ``options`` apply to this step, before the agent's own.
        ``session`` (an earlier step's result, or an id) names the session to continue, with
        ``fork`` in a copy; else the agent starts clean. ``writes`` are patterns of the files that
        the agent may change, in a git repository: handrail saves other changes to a patch file and
        undoes them, and the step fails. Without a ``sandbox`` that is a look afterwards, and at the
        repository alone. ``worktree`` gives the agent a git worktree of its own,
        merged back when it succeeds. ``check``, a function of the answer or an agent that is given
        ``answer``, accepts it (True) or refuses it (False, a reason, or ``passed`` and ``reason``);
        the agent is then asked once more, with the reason. ``default`` is the answer if the step
        fails; ``.answer()`` makes the answer the output.
        """
        arguments.check_agent(self.name, agent)
        settings = arguments.agent_settings(
            self.name,
            *(backend, model, options, session),
            fork=fork,
            writes=writes,
            worktree=worktree,
            check=check,
        )
        call = AgentCall(agent, arguments.context_of(self.name, context), settings)
        made: Step[AgentResult[Any]] = Step(self.name, call)
        return made if default is MISSING else made.default(AgentResult(default))

    def generate(
        self,
        generator: AgentLike[Any] | Callable[[Mapping[str, Any]], str | Awaitable[str]],
        context: Context | None = None,
    ) -> Step[str]:
        """Have an agent, or a function of the context, write a text, which is the output."""
        if not callable(generator) and not callable(getattr(generator, "run", None)):
            raise WrongUse(
                f"step {self.name!r}: .generate() takes an agent or a function of the context, "
                f"got {generator!r}"
            )
        return Step(self.name, Generation(generator, arguments.context_of(self.name, context)))

    # -- validation, children, branches ---------------------------------------------------------

    def validate(
        self,
        stages: Sequence[str | Stage | AgentLike[Any] | Callable[..., Any]]
        | Stage
        | AgentLike[Any]
        | Callable[..., Any]
        | None = None,
        retry: int = 3,
        on_failure: Step[Any] | None = None,
    ) -> Step[ValidationResult]:
        """Run stages (None: all that are configured), and repair what they find. A stage is a name
        (of a stage, or of a set of them), a ``Stage``, an agent that judges, or a callable. One
        alone needs no list.

        While a stage fails, run ``on_failure`` and then all stages again, at most ``retry`` times;
        then the step fails.
        """
        count_of(retry, "validate(retry)", least=0)
        if on_failure is not None and not isinstance(on_failure, Step):
            raise WrongUse(
                f"step {self.name!r}: on_failure takes a step with a verb, got {on_failure!r}"
            )
        if on_failure is not None:
            take(on_failure)
        made = None if stages is None else arguments.stages_of(self.name, stages)
        return Step(self.name, bodies.Validation(made, retry, on_failure))

    def subworkflow(
        self, workflow: WorkflowLike[..., R], inputs: Mapping[str, Any] | None = None
    ) -> Step[WorkflowResult[R]]:
        """Run another workflow as part of this run, with its inputs by parameter name."""
        return Step(
            self.name,
            bodies.ChildWorkflow(
                arguments.workflow_of(self.name, workflow), (), dict(inputs or {})
            ),
        )

    def run_workflow(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Step[WorkflowResult[R]]:
        """``subworkflow`` with its arguments checked by type."""
        return Step(
            self.name,
            bodies.ChildWorkflow(arguments.workflow_of(self.name, workflow), args, kwargs),
        )

    @overload
    def branch(self, a: tuple[Predicate, Step[T1]], /) -> Step[BranchResult[T1]]: ...
    @overload
    def branch(
        self, a: tuple[Predicate, Step[T1]], b: tuple[Predicate, Step[T2]], /
    ) -> Step[BranchResult[T1 | T2]]: ...
    @overload
    def branch(
        self,
        a: tuple[Predicate, Step[T1]],
        b: tuple[Predicate, Step[T2]],
        c: tuple[Predicate, Step[T3]],
        /,
    ) -> Step[BranchResult[T1 | T2 | T3]]: ...
    # mypy falls back to Any where two overloads fit and an argument has an Any in it (a lambda, a
    # fake agent's output), so variadic forms begin where those of fixed length end; `*arms` fits.
    @overload
    def branch(
        self,
        a: tuple[Predicate, Step[Any]],
        b: tuple[Predicate, Step[Any]],
        c: tuple[Predicate, Step[Any]],
        d: tuple[Predicate, Step[Any]],
        /,
        *arms: tuple[Predicate, Step[Any]],
    ) -> Step[BranchResult[Any]]: ...
    def branch(self, *arms: tuple[Predicate, Step[Any]]) -> Step[BranchResult[Any]]:
        """Run the step of the first arm ``(predicate, step)`` whose predicate is true."""
        if not arms:
            raise DefinitionError(f"step {self.name!r}: .branch() needs at least one arm")
        for arm in arms:
            if not (isinstance(arm, tuple) and len(arm) == 2 and callable(arm[0])):
                raise WrongUse(
                    f"step {self.name!r}: an arm of .branch() is (predicate, step), got {arm!r}"
                )
            _a_step(self.name, ".branch()", arm[1])
        return Step(self.name, bodies.Branching(arms))

    def holding(
        self,
        what: str | Sequence[str],
        body: Callable[[*Ts], Steps[R] | Step[R]],
        *args: *Ts,
        wait: float | timedelta | None = None,
    ) -> Step[R]:
        """Claim a name (a text), or the files that patterns cover (a list), during ``body(*args)``.

        ``body`` returns a step, or yields steps, which run below this step's path; the output is
        the body's. Whoever claims something that overlaps waits in line. ``wait``: how long to wait
        for the claim, else the step fails.

        Raises:
            DefinitionError: a pattern leads out of the repository. WrongUse: no function was given.
        """
        return Step(
            self.name,
            bodies.HeldBody(
                arguments.wanted_of(self.name, what, wait), arguments.body_of(self.name, body), args
            ),
        )

    def worktree(
        self,
        body: Callable[[*Ts], Steps[R] | Step[R]],
        *args: *Ts,
        base: str | None = None,
        setup: Step[Any] | str | Sequence[str] | None = None,
        merge: Merge | Callable[[OwnTree], object] = "ff",
    ) -> Step[R]:
        """Run all steps of ``body(*args)`` in a git worktree of their own, then merge it.

        The worktree begins at the commit ``base`` (default: HEAD), and ``setup``, a step or a
        command, runs in it first. ``merge``: handrail puts its commits on top of what HEAD is by
        then (``"ff"``), makes a merge commit (``"merge"``), leaves them (``"keep"``), or calls a
        function with the worktree. The output is the body's.

        Raises:
            DefinitionError: ``merge`` is none of these. WrongUse: ``body`` is no function.
        """
        first = arguments.setup_of(self.name, setup)
        how = arguments.merge_of(self.name, merge)
        return Step(
            self.name,
            bodies.TreeBody(arguments.body_of(self.name, body), args, base, first, how),
        )

    # -- groups ---------------------------------------------------------------------------------

    @overload
    def parallel(self, *steps: *tuple[Step[T1]], **group: Unpack[Raising]) -> Step[tuple[T1]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1], Step[T2]], **group: Unpack[Raising]
    ) -> Step[tuple[T1, T2]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1], Step[T2], Step[T3]], **group: Unpack[Raising]
    ) -> Step[tuple[T1, T2, T3]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4]], **group: Unpack[Raising]
    ) -> Step[tuple[T1, T2, T3, T4]]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4], Step[T5]],
        **group: Unpack[Raising],
    ) -> Step[tuple[T1, T2, T3, T4, T5]]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4], Step[T5], Step[T6]],
        **group: Unpack[Raising],
    ) -> Step[tuple[T1, T2, T3, T4, T5, T6]]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4], Step[T5], Step[T6], Step[T7]],
        **group: Unpack[Raising],
    ) -> Step[tuple[T1, T2, T3, T4, T5, T6, T7]]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[
            Step[T1], Step[T2], Step[T3], Step[T4], Step[T5], Step[T6], Step[T7], Step[T8]
        ],
        **group: Unpack[Raising],
    ) -> Step[tuple[T1, T2, T3, T4, T5, T6, T7, T8]]: ...
    @overload
    def parallel(self, *steps: *NineOrMore[T], **group: Unpack[Raising]) -> Step[tuple[T, ...]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1]], **group: Unpack[Continuing]
    ) -> Step[tuple[StepResult[T1]]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1], Step[T2]], **group: Unpack[Continuing]
    ) -> Step[tuple[StepResult[T1], StepResult[T2]]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1], Step[T2], Step[T3]], **group: Unpack[Continuing]
    ) -> Step[tuple[StepResult[T1], StepResult[T2], StepResult[T3]]]: ...
    @overload
    def parallel(
        self, *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4]], **group: Unpack[Continuing]
    ) -> Step[tuple[StepResult[T1], StepResult[T2], StepResult[T3], StepResult[T4]]]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4], Step[T5]],
        **group: Unpack[Continuing],
    ) -> Step[
        tuple[StepResult[T1], StepResult[T2], StepResult[T3], StepResult[T4], StepResult[T5]]
    ]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4], Step[T5], Step[T6]],
        **group: Unpack[Continuing],
    ) -> Step[
        tuple[
            StepResult[T1],
            StepResult[T2],
            StepResult[T3],
            StepResult[T4],
            StepResult[T5],
            StepResult[T6],
        ]
    ]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[Step[T1], Step[T2], Step[T3], Step[T4], Step[T5], Step[T6], Step[T7]],
        **group: Unpack[Continuing],
    ) -> Step[
        tuple[
            StepResult[T1],
            StepResult[T2],
            StepResult[T3],
            StepResult[T4],
            StepResult[T5],
            StepResult[T6],
            StepResult[T7],
        ]
    ]: ...
    @overload
    def parallel(
        self,
        *steps: *tuple[
            Step[T1], Step[T2], Step[T3], Step[T4], Step[T5], Step[T6], Step[T7], Step[T8]
        ],
        **group: Unpack[Continuing],
    ) -> Step[
        tuple[
            StepResult[T1],
            StepResult[T2],
            StepResult[T3],
            StepResult[T4],
            StepResult[T5],
            StepResult[T6],
            StepResult[T7],
            StepResult[T8],
        ]
    ]: ...
    @overload
    def parallel(
        self, *steps: *NineOrMore[T], **group: Unpack[Continuing]
    ) -> Step[tuple[StepResult[T], ...]]: ...
    def parallel(
        self,
        *steps: Step[Any],
        on_error: OnError = "fail_fast",
        max_concurrency: int | None = None,
        min_success: float | None = None,
    ) -> Step[Any]:
        """Run steps side by side; the output is their outputs in the order written.

        ``on_error``: ``fail_fast`` cancels the siblings of the first failure. ``continue`` runs all
        steps, and the output has their ``StepResult``s; ``min_success`` is how many must succeed,
        or as a float from 0.0 to 1.0 which share of them. ``all_or_nothing`` runs all steps; if one
        fails, the group fails and rolls back those that succeeded.
        """
        for member in steps:
            _a_step(self.name, ".parallel()", member)
        arguments.check_group(self.name, on_error, max_concurrency, min_success)
        return Step(self.name, groups.ParallelGroup(steps, on_error, max_concurrency, min_success))

    @overload
    def for_each(
        self,
        items: Mapping[K, A],
        body: Callable[[A], Step[T] | Steps[T]],
        *,
        key: Callable[[A], object] | None = ...,
        **group: Unpack[Raising],
    ) -> Step[list[T]]: ...
    @overload
    def for_each(
        self,
        items: Mapping[K, A],
        body: Callable[[A], Step[T] | Steps[T]],
        *,
        key: Callable[[A], object] | None = ...,
        **group: Unpack[Continuing],
    ) -> Step[list[StepResult[T]]]: ...
    @overload
    def for_each(
        self,
        items: Iterable[A],
        body: Callable[[A], Step[T] | Steps[T]],
        *,
        key: Callable[[A], object] | None = ...,
        **group: Unpack[Raising],
    ) -> Step[list[T]]: ...
    @overload
    def for_each(
        self,
        items: Iterable[A],
        body: Callable[[A], Step[T] | Steps[T]],
        *,
        key: Callable[[A], object] | None = ...,
        **group: Unpack[Continuing],
    ) -> Step[list[StepResult[T]]]: ...
    def for_each(
        self,
        items: Iterable[Any] | Mapping[Any, Any],
        body: Callable[[Any], Any],
        *,
        on_error: OnError = "fail_fast",
        max_concurrency: int | None = None,
        key: Callable[[Any], object] | None = None,
        min_success: float | None = None,
    ) -> Step[Any]:
        """Run ``body(item)`` for each item, side by side; the output is a list in order of items.

        ``body`` returns a step, or is a generator function whose steps nest under ``name/<key>/``.
        The key is a mapping's key (the body gets the value), else ``key(item)``, else the index.
        Items are pulled as the window of ``max_concurrency`` opens. ``on_error`` as in
        ``parallel``.
        """
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise WrongUse(f"step {self.name!r}: .for_each() takes a collection, got {items!r}")
        if not callable(body):
            raise WrongUse(
                f"step {self.name!r}: the body of .for_each() is a function of one item that "
                f"returns a step or yields steps, got {body!r}"
            )
        if key is not None and not callable(key):
            raise WrongUse(f"step {self.name!r}: key is a function of one item, got {key!r}")
        arguments.check_group(self.name, on_error, max_concurrency, min_success)
        return Step(
            self.name,
            groups.ForEachGroup(items, body, on_error, max_concurrency, key, min_success),
        )

    def work(
        self,
        tasks: Iterable[Task],
        body: Callable[[Task], Step[Found[T]] | Steps[Found[T]]],
        *,
        max_concurrency: int | None = None,
        at_most: int | None = None,
        stop: StopRule | None = None,
        on_error: Literal["continue", "fail_fast"] = "continue",
    ) -> Step[Work[T]]:
        """Run ``body(task)`` for each task, the most urgent first; a task may bring further tasks.

        ``body`` returns a step, or is a generator function whose steps nest under ``name/<id>/``.
        Its output is ``Found(value, children)``, and the children join the queue. A second task
        with the same id is refused. While the window of ``max_concurrency`` is full, tasks wait:
        the lowest ``priority`` begins first, among equals the one that came first. No more than
        ``at_most`` tasks begin, in all drives. After each task's end handrail calls ``stop`` with
        the ``Tally`` so far; if that returns a text, no further task begins, and tasks at work
        finish. A failed task is in ``Work.failed``; with ``on_error="fail_fast"`` it fails the step
        and stops the others.
        """
        found = arguments.tasks_of(self.name, tasks)
        arguments.check_work(
            self.name,
            body,
            stop,
            on_error=on_error,
            max_concurrency=max_concurrency,
            at_most=at_most,
        )
        return Step(
            self.name, groups.WorkGroup(found, body, on_error, max_concurrency, at_most, stop)
        )

    @overload
    def race(self, a: Step[T1], /) -> Step[T1]: ...
    @overload
    def race(self, a: Step[T1], b: Step[T2], /) -> Step[T1 | T2]: ...
    @overload
    def race(self, a: Step[T1], b: Step[T2], c: Step[T3], /) -> Step[T1 | T2 | T3]: ...
    @overload
    def race(
        self, a: Step[T1], b: Step[T2], c: Step[T3], d: Step[T4], /
    ) -> Step[T1 | T2 | T3 | T4]: ...
    @overload
    def race(
        self, a: Step[T], b: Step[T], c: Step[T], d: Step[T], e: Step[T], /, *steps: Step[T]
    ) -> Step[T]: ...
    def race(self, *steps: Step[Any]) -> Step[Any]:
        """Run steps side by side; the first success is the output, and the others are cancelled.

        The race fails if all steps fail.
        """
        if not steps:
            raise DefinitionError(f"step {self.name!r}: .race() needs at least one step")
        for member in steps:
            _a_step(self.name, ".race()", member)
        return Step(self.name, groups.RaceGroup(steps))

    # -- waiting --------------------------------------------------------------------------------

    @overload
    def ask(
        self,
        question: str,
        *,
        type: type[T],
        timeout: float | timedelta | None = None,
        agents_may_answer: bool = False,
    ) -> Step[T]: ...
    @overload
    def ask(
        self,
        question: str,
        *,
        type: type[T],
        default: V,
        timeout: float | timedelta | None = None,
        agents_may_answer: bool = False,
    ) -> Step[T | V]: ...
    @overload
    def ask(
        self,
        question: str,
        *,
        choices: Sequence[T] | Mapping[str, T],
        default: T = ...,
        timeout: float | timedelta | None = None,
        agents_may_answer: bool = False,
    ) -> Step[T]: ...
    @overload
    def ask(
        self,
        question: str,
        *,
        default: str = ...,
        timeout: float | timedelta | None = None,
        agents_may_answer: bool = False,
    ) -> Step[str]: ...
    def ask(
        self,
        question: str,
        *,
        choices: Sequence[Any] | Mapping[str, Any] | None = None,
        type: Any = None,
        default: Any = MISSING,
        timeout: float | timedelta | None = None,
        agents_may_answer: bool = False,
    ) -> Step[Any]:
        """Ask a person; the output is the answer, one of ``choices`` or converted to ``type``.

        ``choices`` may map what is shown, and typed, to what the output is then. For one that asks
        for a text that is a ``Choice(value, prompt_for="reason")``, with the text.
        After ``timeout`` seconds the answer is ``default``; without a default the step fails.
        Agents and commands that steps started cannot answer it, unless ``agents_may_answer``.

        Raises:
            TypeError: choices and type together.
            ValueError: choices that look alike as text, or a default that is no choice.
        """
        if choices is not None and type is not None:
            raise WrongUse(f"step {self.name!r}: .ask() takes choices or a type, not both")
        if not isinstance(question, str) or not question.strip():
            raise DefinitionError(f"step {self.name!r}: .ask() needs a question, got {question!r}")
        values = tuple(choices.values()) if isinstance(choices, Mapping) else ()
        if default in values:
            default = tuple(choices or ())[values.index(default)]
        offered = () if choices is None else arguments.choices_of(self.name, choices, default)
        return Step(
            self.name,
            waits.Question(
                question,
                offered,
                str if type is None else type,
                None if default is MISSING else default,
                default is not MISSING,
                None if timeout is None else positive_seconds(timeout, "timeout"),
                values,
                agents_may_answer,
            ),
        )

    @overload
    def wait_for(self, signal: str, *, agents_may_answer: bool = False) -> Step[Any]: ...
    @overload
    def wait_for(
        self, signal: str, type: type[T], *, agents_may_answer: bool = False
    ) -> Step[T]: ...
    def wait_for(
        self, signal: str, type: Any = Any, *, agents_may_answer: bool = False
    ) -> Step[Any]:
        """Wait for the signal of this name; the output is its payload, converted to ``type``.

        Agents and commands that steps started cannot send it, unless ``agents_may_answer``.
        """
        return Step(
            self.name, waits.SignalWait(check_name(signal, "signal"), type, agents_may_answer)
        )

    def sleep(self, duration: float | timedelta | datetime) -> Step[None]:
        """Wait for seconds or a timedelta, or until an aware datetime."""
        if isinstance(duration, datetime):
            if duration.tzinfo is None or duration.utcoffset() is None:
                raise DefinitionError(
                    f"step {self.name!r}: .sleep() needs a datetime with a time zone, got "
                    f"{duration!r}. Write datetime(..., tzinfo=UTC), or use seconds."
                )
            if duration.year == MAXYEAR:
                raise DefinitionError(
                    f"step {self.name!r}: .sleep() must end before the year 9999, got "
                    f"{duration!r}. To wait without end, use .wait_for()."
                )
            return Step(self.name, waits.Pause(None, duration))
        return Step(self.name, waits.Pause(seconds_of(duration, "sleep")))

    # -- a verb of one's own --------------------------------------------------------------------

    def verb(self, verb: Verb) -> Step[Any]:
        """Run a verb of your own: a ``Leaf`` or a ``Group`` that has a row in ``steps.table``."""
        for one in verb.held():
            take(one)
        return Step(self.name, verb)


def _a_step(name: str, verb: str, member: object) -> None:
    if isinstance(member, Step):
        take(member)  # pyright: ignore[reportUnknownArgumentType]  # a step of anything
        return
    hint = f" {member.name!r} has no verb yet." if isinstance(member, StepName) else ""
    raise WrongUse(f"step {name!r}: {verb} takes steps, got {member!r}.{hint}")


__all__ = ["StepName", "step"]
