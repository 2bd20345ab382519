"""An agent: a prompt, a backend, and the type that the answer must have."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

import attrs

from handrail.agents.launch import AgentLaunch, schema_for
from handrail.agents.prompt import (
    Files,
    Prompt,
    files_of,
    files_section,
    identity_of,
    render_prompt,
    resolve_beside,
    results_section,
    with_sections,
)
from handrail.agents.routes import (
    Fallback,
    check_backend,
    check_options,
    missing_program,
    routes_of,
)
from handrail.errors import DefinitionError, WrongUse
from handrail.model.agent_options import (
    CONTEXT_MODES,
    NO_OPTIONS,
    AgentOptions,
    AgentSettings,
    ContextMode,
    with_model,
)
from handrail.model.launch import AgentError, Launch
from handrail.model.policy import DEFAULT_LADDER, Ladder, count_of, word_of
from handrail.model.results import AgentResult
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import unresolved_field
from handrail.workspace.places import folder_of

T_co = TypeVar("T_co", covariant=True)


def _check_name(_: Any, __: attrs.Attribute[Any], name: object) -> None:
    if not isinstance(name, str):
        raise WrongUse(f"an agent's name must be text, got {name!r}")
    if not name.strip():
        raise DefinitionError(f"an agent needs a name that is not blank, got {name!r}")


def _check_prompt(agent: Agent[Any], _: attrs.Attribute[Any], prompt: object) -> None:
    if not isinstance(prompt, (str, Path)) and not callable(prompt):
        raise WrongUse(
            f"agent {agent.name!r}: a prompt is text, a pathlib.Path to a template, or a function "
            f"of the context, got {short_repr(prompt)}"
        )


def _check_output(agent: Agent[Any], _: attrs.Attribute[Any], output: object) -> None:
    if isinstance(output, str):
        raise WrongUse(f"agent {agent.name!r}: output= takes a type, got the text {output!r}")
    given: Any = output
    if isinstance(output, (Mapping, list, tuple, set)):
        raise WrongUse(
            f"agent {agent.name!r}: output= takes a Python type (a dataclass, a TypedDict, "
            f"list[str], ...), not a JSON schema or a value, got {short_repr(given)}"
        )
    try:
        schema_for(output)
    except DefinitionError as error:
        raise DefinitionError(f"agent {agent.name!r}, output=: {error}") from None
    unknown = unresolved_field(output)
    if unknown is not None:
        raise DefinitionError(
            f"agent {agent.name!r}, output=: the annotation of {unknown!r} names what is not there "
            f"when the program runs, so that anything would fit. Import it outside of "
            f"`if TYPE_CHECKING:`."
        )


def _check_backend(agent: Agent[Any], _: attrs.Attribute[Any], backend: object) -> None:
    check_backend(backend, f"agent {agent.name!r}")


def _check_options(agent: Agent[Any], _: attrs.Attribute[Any], options: object) -> None:
    whose = f"agent {agent.name!r}"
    if not isinstance(options, AgentOptions):
        raise WrongUse(f"{whose}: options= takes AgentOptions(...), got {short_repr(options)}")
    check_options(agent.backend, options, whose)


def _check_fallback(agent: Agent[Any], _: attrs.Attribute[Any], chain: tuple[object, ...]) -> None:
    for one in chain:
        if not (isinstance(one, str) and one.startswith(":") and one[1:]):
            check_backend(one, f"agent {agent.name!r}, fallback")


def _check_mode(agent: Agent[Any], _: attrs.Attribute[Any], mode: object) -> None:
    if mode is not None:
        word_of(mode, f"context_mode of agent {agent.name!r}", CONTEXT_MODES)


def _check_tokens(agent: Agent[Any], _: attrs.Attribute[Any], count: object) -> None:
    count_of(count, f"context_tokens of agent {agent.name!r}")


def _caller() -> str | None:
    """The file that calls ``Agent(...)``: that of the frame which called ``__init__``."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return None if frame is None else frame.f_globals.get("__file__")


def _check_ladder(agent: Agent[Any], _: attrs.Attribute[Any], ladder: object) -> None:
    if not isinstance(ladder, Ladder):
        raise WrongUse(
            f"agent {agent.name!r}: ladder= takes a Ladder(...), got {short_repr(ladder)}"
        )


def _check_reasks(agent: Agent[Any], _: attrs.Attribute[Any], count: object) -> None:
    count_of(count, f"max_reasks of agent {agent.name!r}", least=0)


class _Settings(TypedDict, total=False):
    """The settings of ``Agent`` that do not decide the type of its answers."""

    backend: AgentBackend | str | None
    max_reasks: int
    model: str | None
    options: AgentOptions
    fallback: Sequence[Fallback]
    ladder: Ladder
    context_mode: ContextMode | None
    context_tokens: int
    files: Files | Sequence[str | os.PathLike[str]]


@attrs.frozen(init=False)
class Agent(Generic[T_co]):
    """A named task for a model, whose answer is of type ``output``.

    ``prompt`` is Jinja2 text, a ``pathlib.Path`` to a file of it, or a sync or async function of
    the context. Each run reads the file again. A relative path is resolved beside the file that
    creates the agent, else in the working directory; includes are found in the prompt file's own
    folder. A template's variables are the context's, and ``ctx``, the ``WorkflowContext``, unless
    the context has its own ``ctx``.

    With an ``output`` other than ``str``, its JSON schema is added to the prompt, and the answer is
    the last JSON value in the reply that fits. If none fits, the backend is re-asked with the
    reason, at most ``max_reasks`` times in all. It is re-asked in its session; without sessions,
    the prompt and its answer are repeated; the last of several re-asks begins a new session. A
    text answer is stripped of surrounding blanks.

    ``context_mode`` adds results of earlier steps that the step may see: the ``"last"`` one, or
    ``"accumulate"``, the latest that fit into ``context_tokens`` (estimated at 4 characters each);
    ``"explicit"`` adds none. Where it is None the executor's counts.
    ``files`` are files and folders whose text comes before the prompt (see ``Files``).

    ``backend`` is a backend, or a name: ``"claude"``, ``"codex:gpt-6"`` (with a model). ``options``
    go to the backend (``model`` is short for ``AgentOptions(model=)``). For both, the step's
    settings come before the agent's, and these before the run's. ``fallback`` lists backends, names
    or ``":model"`` to try if a backend gives no answer; ``ladder`` says what is tried before that.
    """

    name: str = attrs.field(validator=_check_name)
    prompt: Prompt = attrs.field(validator=_check_prompt, repr=short_repr)
    output: Any = attrs.field(validator=_check_output)
    backend: AgentBackend | str | None = attrs.field(validator=_check_backend)
    max_reasks: int = attrs.field(validator=_check_reasks)
    options: AgentOptions = attrs.field(validator=_check_options)
    fallback: tuple[Fallback, ...] = attrs.field(validator=_check_fallback)
    ladder: Ladder = attrs.field(validator=_check_ladder)
    context_mode: ContextMode | None = attrs.field(validator=_check_mode)
    context_tokens: int = attrs.field(validator=_check_tokens)
    files: tuple[Files, ...] = attrs.field()

    @overload
    def __init__(
        self: Agent[str], name: str, prompt: Prompt, **settings: Unpack[_Settings]
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, prompt: Prompt, *, output: type[T_co], **settings: Unpack[_Settings]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any], name: str, prompt: Prompt, *, output: Any, **settings: Unpack[_Settings]
    ) -> None: ...
    def __init__(
        self,
        name: str,
        prompt: Prompt,
        *,
        output: Any = str,
        backend: AgentBackend | str | None = None,
        max_reasks: int = 2,
        model: str | None = None,
        options: AgentOptions = NO_OPTIONS,
        fallback: Sequence[Fallback] = (),
        ladder: Ladder = DEFAULT_LADDER,
        context_mode: ContextMode | None = None,
        context_tokens: int = 8_000,
        files: Files | Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        if isinstance(options, AgentOptions):
            options = with_model(model, options, f"agent {name!r}")
        if isinstance(fallback, str):
            raise WrongUse(f"agent {name!r}: fallback= takes a list, got the text {fallback!r}")
        self.__attrs_init__(
            name,
            resolve_beside(prompt, _caller()),
            output,
            backend,
            max_reasks,
            options,
            tuple(fallback),
            ladder,
            context_mode,
            context_tokens,
            files_of(files, f"agent {name!r}"),
        )

    if TYPE_CHECKING:  # attrs makes it; not every type checker knows

        def __attrs_init__(self, *values: Any) -> None: ...

    @property
    def identity(self) -> dict[str, Any]:
        """What makes this agent's answers comparable: name, prompt template, output schema.

        Plain JSON data for a step's fingerprint. A prompt file counts by its text, a prompt
        function by its reference; included templates do not count.
        """
        known: dict[str, Any] = {
            "agent": self.name,
            "prompt": identity_of(self.prompt),
            "output": schema_for(self.output),
        }
        if self.context_mode not in (None, "explicit"):
            known["context_mode"] = self.context_mode
        if self.files:
            known["files"] = [list(files.paths) for files in self.files]
        return known

    async def prompt_for(self, request: AgentRequest, /) -> str:
        """The prompt rendered from the request's context, before anything is added to it.

        Raises:
            PromptError: it cannot be rendered.
        """
        return await render_prompt(
            self.prompt, agent=self.name, context=request.context, workflow=request.workflow
        )

    async def run(self, request: AgentRequest, /) -> AgentResult[T_co]:
        """The answer of one launch to the prompt rendered from the request's context.

        Raises:
            AgentError: there is no backend, or it gave no answer.
            DefinitionError: none of its backends has the session that it is to continue.
            PromptError: the prompt cannot be rendered from the context.
            AnswerRejected: the answer was not of the output type.
        """
        defaults = request.defaults
        routes = routes_of(self, request.settings, defaults)
        text = await self.prompt_for(request)
        mode = self.context_mode or defaults.context_mode or "explicit"
        folder = Path(routes[0].options.cwd or Path.cwd()) if self.files else Path()
        text = with_sections(
            text,
            files_section(self.files, folder, self.name),
            results_section(mode, request.workflow.results, self.context_tokens),
        )
        ladder = defaults.ladder if self.ladder is DEFAULT_LADDER else self.ladder
        launch = AgentLaunch(
            self.name, self.output, routes, ladder or DEFAULT_LADDER, self.max_reasks, request
        )
        return await launch.run(text)


def check_launchable(
    given: object, settings: AgentSettings, defaults: Callable[[], AgentSettings] | None
) -> None:
    """Raise what a launch of an agent would raise before it calls its backend; else do nothing.

    Without ``defaults``, the settings of the run, only the step's own settings are checked. Agents
    of other classes are not checked. Other errors are left to the launch.

    Raises:
        AgentError: it has no backend, or none whose program is installed.
        DefinitionError: a backend cannot honour an option, or no backend has the name.
    """
    if getattr(type(given), "run", None) is not Agent[Any].run:
        return
    agent = cast("Agent[Any]", given)
    if defaults is None:
        whose = f"agent {agent.name!r}"
        check_backend(settings.backend, whose)
        check_options(settings.backend, settings.options, whose)
        return
    try:
        run = defaults()
        routes = routes_of(agent, settings, attrs.evolve(run, replace_backend=None))
        replaced = run.replace_backend is not None  # a cassette needs no program
        missing = [] if replaced else [missing_program(route) for route in routes]
    except (AgentError, DefinitionError):
        raise
    except Exception:  # noqa: BLE001  # the launch reports it
        return
    if missing and all(missing):
        raise AgentError(agent.name, "; ".join(filter(None, missing)), kind="not_installed")


def launch_folder(
    given: object, settings: AgentSettings, defaults: AgentSettings, launch: Launch
) -> Path | None:
    """The folder that a launch of an agent works in.

    None for an agent of another class, and for a launch that will fail and report why.
    """
    if getattr(type(given), "run", None) is not Agent[Any].run:
        return None
    agent = cast("Agent[Any]", given)
    try:
        routes = routes_of(agent, settings, defaults)
    except Exception:  # noqa: BLE001  # the launch reports it
        return None
    route = routes[min(launch.route, len(routes) - 1)]
    return folder_of(route.options, route.backend)
