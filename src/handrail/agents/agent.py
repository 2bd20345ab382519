"""An agent: a prompt, a backend, and the type that the answer must have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import attrs

from handrail.agents.conversation import Conversation, schema_for
from handrail.agents.prompt import Prompt, identity_of, rendered
from handrail.errors import AgentError, DefinitionError, WrongUse
from handrail.model.jsonsafe import short_repr
from handrail.model.policy import count_of
from handrail.model.results import AgentResult
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend

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
    try:
        schema_for(output)
    except DefinitionError as error:
        raise DefinitionError(f"agent {agent.name!r}, output=: {error}") from None


def _check_backend(agent: Agent[Any], _: attrs.Attribute[Any], backend: object) -> None:
    if backend is not None and not callable(getattr(backend, "complete", None)):
        raise WrongUse(
            f"agent {agent.name!r}: backend= takes a backend (it has an async complete), such as "
            f"CommandBackend([...]) or FakeBackend([...]), got {short_repr(backend)}"
        )


def _check_reasks(agent: Agent[Any], _: attrs.Attribute[Any], count: object) -> None:
    count_of(count, f"max_reasks of agent {agent.name!r}", least=0)


@attrs.frozen(init=False)
class Agent(Generic[T_co]):
    """A named task for a model, whose answer is of type ``output``.

    ``prompt`` is Jinja2 text, a ``pathlib.Path`` to a file of it (read at each run; its includes
    are found in its folder), or a sync or async function of the context. Variables are the
    context's, and ``ctx``, the ``WorkflowContext``, unless the context has a ``ctx`` of its own.

    With an ``output`` other than ``str``, its JSON schema is added to the prompt, and the answer is
    the last JSON value in the reply that fits. If none does, the backend is asked again with the
    reason, at most ``max_reasks`` times: within its session, or, if it has none, with the prompt
    and its own answer repeated. Text is stripped of blanks around it.
    """

    name: str = attrs.field(validator=_check_name)
    prompt: Prompt = attrs.field(validator=_check_prompt, repr=short_repr)
    output: Any = attrs.field(validator=_check_output)
    backend: AgentBackend | None = attrs.field(validator=_check_backend)
    max_reasks: int = attrs.field(validator=_check_reasks)

    @overload
    def __init__(
        self: Agent[str],
        name: str,
        prompt: Prompt,
        *,
        backend: AgentBackend | None = None,
        max_reasks: int = 2,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        prompt: Prompt,
        *,
        output: type[T_co],
        backend: AgentBackend | None = None,
        max_reasks: int = 2,
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any],
        name: str,
        prompt: Prompt,
        *,
        output: Any,
        backend: AgentBackend | None = None,
        max_reasks: int = 2,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        prompt: Prompt,
        *,
        output: Any = str,
        backend: AgentBackend | None = None,
        max_reasks: int = 2,
    ) -> None:
        self.__attrs_init__(name, prompt, output, backend, max_reasks)

    if TYPE_CHECKING:  # attrs makes it; not every type checker knows

        def __attrs_init__(self, *values: Any) -> None: ...

    @property
    def identity(self) -> dict[str, Any]:
        """What makes this agent's answers comparable: name, prompt template, output schema.

        Plain JSON data for the fingerprint of a step. Of a prompt file it is the text, of a prompt
        function its reference; templates that a prompt includes are not part of it.
        """
        return {
            "agent": self.name,
            "prompt": identity_of(self.prompt),
            "output": schema_for(self.output),
        }

    async def run(self, request: AgentRequest, /) -> AgentResult[T_co]:
        """The answer to the prompt that the request's context makes.

        Raises:
            AgentError: there is no backend, or it gave no answer.
            PromptError: the prompt cannot be made from the context.
            AnswerRejected: no answer was of the output type.
        """
        if self.backend is None:
            raise AgentError(self.name, _NO_BACKEND.format(name=self.name))
        text = await rendered(
            self.prompt, agent=self.name, context=request.context, workflow=request.workflow
        )
        talk = Conversation(self.name, self.backend, self.output, request)
        return await talk.hold(text, max_reasks=self.max_reasks)


_NO_BACKEND = (
    "it has no backend. Pass one to Agent(..., backend=...), or put another agent in its place "
    "with Executor(agents={{{name!r}: ...}})."
)
