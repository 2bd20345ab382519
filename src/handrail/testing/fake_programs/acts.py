"""What a fake program does, prompt by prompt: plain data, because another process reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import attrs

from handrail.errors import WrongUse
from handrail.model.results import Usage
from handrail.typed.jsonsafe import short_repr

Moment: TypeAlias = Literal["launch", "start", "tool", "result"]
"""Before anything is printed; when the session is known; in a tool; after the answer."""

Failure: TypeAlias = Literal[
    "rate_limit", "usage_cap", "spending_cap", "context_overflow", "auth", "transient",
    "bad_request", "invalid_output", "max_turns", "output_limit", "refusal", "config",
]  # fmt: skip
"""The kinds of ``AgentErrorKind`` that a program itself reports."""

MOMENTS: tuple[str, ...] = get_args(Moment)
FAILURES: tuple[str, ...] = get_args(Failure)
SHORTER = {"overflow": "context_overflow", "cap": "usage_cap"}
ONE_TURN = Usage(
    input_tokens=1900,
    output_tokens=25,
    cached_tokens=400,
    cache_write_tokens=300,
    reasoning_tokens=10,
)


def _one_of(*choices: str) -> Any:
    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in choices:
            known = ", ".join(map(repr, choices))
            raise WrongUse(f"{attribute.name} must be one of {known}, got {short_repr(value)}")

    return check


def _plain(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise WrongUse(
            f"{attribute.name} is read by another process, so it must be plain JSON data: {error}"
        ) from None


@attrs.frozen
class Tool:
    """A tool call: a shell command unless ``name`` says otherwise, in the program's own words.

    The fake runs nothing: it reports ``output`` as what the tool printed. ``asks``: the program
    needs permission for the tool. It asks the client, if its protocol can and its options do not
    forbid that; else the tool is denied, unless the program may do anything.
    """

    command: str = ""
    output: str = ""
    exit_code: int = 0
    name: str | None = None
    input: Mapping[str, Any] | None = attrs.field(default=None, validator=_plain)
    asks: bool = False


def _tools(given: Sequence[Tool | str]) -> tuple[Tool, ...]:
    if isinstance(given, str):
        raise WrongUse(f"tools takes a list of tools, got the text {given!r}")
    return tuple(Tool(one) if isinstance(one, str) else one for one in given)


def _failure(kind: Any) -> Failure:
    return cast("Failure", SHORTER.get(kind, kind) if isinstance(kind, str) else kind)


def _nothing() -> Says:
    return Says("")


@attrs.frozen(kw_only=True)
class Faults:
    """The faults that any launch may have, whatever it answers.

    - ``split_utf8``: each line is written in two parts, cut inside a character where it has one.
    - ``line_delay_s``: the pause before each line.
    - ``noise_bytes``: one more event, of an unknown kind and of this size.
    - ``stderr``: printed there first.
    - ``leaves_child``: a process in a session of its own outlives the program.
    - ``holds_stdout_s``: a process keeps the program's stdout open for this long.
    - ``ignores_sigint``, ``ignores_sigterm``: only SIGTERM, or only SIGKILL, ends it.
    """

    split_utf8: bool = False
    line_delay_s: float = 0.0
    noise_bytes: int = 0
    stderr: str = ""
    leaves_child: bool = False
    holds_stdout_s: float = 0.0
    ignores_sigint: bool = False
    ignores_sigterm: bool = False


@attrs.frozen
class Says(Faults):
    """An answer: its last message is ``text``, or ``structured`` in the program's form of a value.

    Before it the program thinks (``reasoning``), uses ``tools`` and writes the files of ``writes``
    (path to content, None to delete) into its working folder, each reported as a tool call.
    ``usage`` is this answer's alone. ``session`` is the id of a new session.
    """

    text: str = "done."
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_tools)
    reasoning: str = ""
    structured: Any = attrs.field(default=None, validator=_plain)
    usage: Usage = ONE_TURN
    session: str | None = None
    model: str | None = None
    writes: Mapping[str, str | None] = attrs.field(factory=dict, validator=_plain)


@attrs.frozen
class Fails(Faults):
    """A failure in the program's own form, after the parts of ``says`` that precede an answer.

    ``resets`` is a time as the program writes it (``"9:35pm (UTC)"``), ``resets_at`` a time in unix
    seconds, for protocols with a field for it; without ``resets`` the text is made from that.
    ``retries`` is how often the program reports a retry of its own before it gives up. ``message``
    replaces the program's text.
    """

    kind: Failure = attrs.field(converter=_failure, validator=_one_of(*FAILURES))
    message: str | None = None
    resets: str | None = None
    resets_at: float | None = None
    retries: int = 0
    says: Says = attrs.field(factory=_nothing)


@attrs.frozen
class Hangs(Faults):
    """``says``, with a silence of ``seconds`` at one moment of it; then it continues."""

    after: Moment = attrs.field(default="start", validator=_one_of(*MOMENTS))
    seconds: float = 300.0
    says: Says = attrs.field(factory=Says)


@attrs.frozen
class Dies(Faults):
    """``says`` up to one moment of it; then the program ends, by ``signal`` if that is set."""

    after: Moment = attrs.field(default="start", validator=_one_of(*MOMENTS))
    exit_code: int = 1
    signal: int | None = None
    says: Says = attrs.field(factory=Says)


@attrs.frozen
class Garbage(Faults):
    """Bytes that are no protocol at all, and then the end, as if all were well."""

    data: bytes = b'{"type": "result", "is_err\n\xff\xfe\x00 not json\n\n[]\n"text"\n'
    exit_code: int = 0


@attrs.frozen
class Replays(Faults):
    """The lines of a recording, as they came.

    ``NAME.jsonl`` has a program's stdout; ``NAME.stderr`` and ``NAME.meta.json`` (``exit_code``,
    ``line_times_s``) beside it are used if they exist. ``NAME.rpc.jsonl`` has both sides of a
    conversation: the fake repeats the program's messages after the client has sent its own.
    ``speed`` 1 keeps the time between lines, 2 halves it; None leaves no time.
    """

    recording: Path = attrs.field(converter=Path)
    speed: float | None = None
    exit_code: int | None = None

    def __attrs_post_init__(self) -> None:
        if not self.recording.is_file():
            raise WrongUse(f"there is no recording {str(self.recording)!r}")


Act: TypeAlias = Says | Fails | Hangs | Dies | Garbage | Replays


def entry_of(act: Act | str) -> dict[str, Any]:
    """The act as the program reads it.

    Raises:
        WrongUse: it is no act.
    """
    match act:
        case str():
            return entry_of(Says(act))
        case Says():
            return {**_faults(act), **_says_data(act)}
        case Fails():
            fail = attrs.asdict(act, filter=_not_says)
            return {**_says_data(act.says), **_faults(act), "fail": _without_faults(fail)}
        case Hangs():
            hang = {"after": act.after, "seconds": act.seconds}
            return {**_says_data(act.says), **_faults(act), "hang": hang}
        case Dies():
            death = {"after": act.after, "exit_code": act.exit_code, "signal": act.signal}
            return {**_says_data(act.says), **_faults(act), "death": death}
        case Garbage():
            data = act.data.decode("latin-1")
            return {**_faults(act), "garbage": {"data": data, "exit_code": act.exit_code}}
        case Replays():
            path = os.fspath(act.recording.resolve())
            replay = {"path": path, "speed": act.speed, "exit_code": act.exit_code}
            return {**_faults(act), "replay": replay}
        case _:
            raise WrongUse(
                "a fake program's script is a list of texts and of Says, Fails, Hangs, Dies, "
                f"Garbage and Replays; it is read by another process, so it cannot have "
                f"{short_repr(act)}"
            )


FAULTS = tuple(field.name for field in attrs.fields(Faults))


def _not_says(attribute: attrs.Attribute[Any], _: Any) -> bool:
    return attribute.name != "says"


def _without_faults(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in FAULTS}


def _faults(act: Faults) -> dict[str, Any]:
    return {name: getattr(act, name) for name in FAULTS}


def _says_data(says: Says) -> dict[str, Any]:
    data = _without_faults(attrs.asdict(says, recurse=False))
    data["tools"] = [attrs.asdict(tool) for tool in says.tools]
    return {**data, "usage": asdict(says.usage), "writes": dict(says.writes)}
