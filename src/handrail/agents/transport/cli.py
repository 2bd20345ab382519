"""Backends that are programs, and the transport of those that answer a prompt in lines."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from uuid import uuid4

import anyio
import attrs

from handrail.agents.transport.parser import TurnParser
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn import GRACE_S, Patience, Transport, run_turn
from handrail.errors import CommandNotFound
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import Notice
from handrail.model.sandbox import chosen_sandbox
from handrail.ports.agent import AgentReply, AgentTurn, Probe
from handrail.sandbox.environment import inherited
from handrail.sandbox.programs import needs_of
from handrail.system.live import Line
from handrail.system.run import CommandNotStarted, run_process


def non_blank(prompt: str) -> bytes:
    """The prompt as bytes; ``Continue.`` in place of a blank one, which some programs refuse."""
    return (prompt if prompt.strip() else "Continue.").encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Lines(Transport):
    """The transport of a program that reads its prompt on stdin and then only prints lines.

    Nothing else is ever sent to it, and only signals end it early. With ``keep_ends`` the parser
    gets each line of stdout with its line ending.
    """

    reader: TurnParser
    stdin: bytes
    keep_ends: bool = False

    def on_line(self, line: Line, /) -> tuple[Iterable[Notice], Iterable[bytes]]:
        """The notices of a line; never lines to send."""
        if line.stream == "stderr":
            return self.reader.feed_stderr(line.data), ()
        return self.reader.feed(line.data + line.end if self.keep_ends else line.data), ()


_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+][\w.+-]*\w)?")
_ANSWER_S = 20.0


async def _version(where: str, env: Mapping[str, str]) -> str | None:
    with anyio.move_on_after(_ANSWER_S):
        try:
            said = await run_process(
                [where, "--version"], marker=f"probe-{uuid4().hex}", env=env, limit_bytes=4096
            )
        except (CommandNotFound, CommandNotStarted):
            return None
        found = _VERSION.search(said.stdout) if said.exit_code == 0 else None
        return found[0] if found else None
    return None


class AnyProgram:
    """What backends that are programs have in common: one process a turn."""

    __slots__ = ()
    dropped: ClassVar[Sequence[str]] = ()
    """Variables that the program must not inherit."""
    variables: ClassVar[Mapping[str, str]] = {}
    """Variables that the program needs."""
    grace_s: ClassVar[float] = GRACE_S
    """How long it may take to exit once it has finished."""
    if TYPE_CHECKING:  # each has these in its own way

        @property
        def name(self) -> str: ...  # noqa: D102
        @property
        def executable(self) -> str: ...  # noqa: D102
        @property
        def options(self) -> AgentOptions: ...  # noqa: D102
        @property
        def program(self) -> Program: ...  # noqa: D102

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The program's answer, once it declared its turn completed.

        Raises:
            AgentError: it did not, or it failed; the error has the reason and its kind.
        """
        return await self._answer(replace(turn, options=turn.options.over(self.options)))

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        """The same, for a turn whose options are complete."""
        raise NotImplementedError

    def where(self, options: AgentOptions) -> str | None:
        """The path of the program with these options' environment; None if it is not there."""
        if os.sep in self.executable and not Path(self.executable).is_absolute():
            return self.executable  # from the folder of the launch
        return shutil.which(self.executable, path=self._environment(options).get("PATH"))

    async def probe(self) -> Probe:
        """Whether the program is installed, its version, and whether it has a login."""
        env, program = self._environment(self.options), self.program
        install = program.install or f"see the documentation of {program.name}"
        where = shutil.which(self.executable, path=env.get("PATH"))
        if where is None:
            return Probe(found=False, advice=f"Install it: {install}")
        version = await _version(where, env)
        if version is None:
            advice = f"`{self.executable} --version` fails. Reinstall: {install}"
            return Probe(found=True, where=where, advice=advice)
        known = program.logged_in(env)
        advice = f"Log in: {program.login}" if known is False else ""
        return Probe(found=True, version=version, where=where, logged_in=known, advice=advice)

    def _variables(self, options: AgentOptions) -> Mapping[str, str]:
        """The variables that the program needs, with these options."""
        del options
        return self.variables

    def _environment(self, options: AgentOptions) -> dict[str, str]:
        add = self._variables(options)
        return child_environment(options, self.name, drop=self.dropped, add=add)

    async def _run(
        self,
        turn: AgentTurn,
        argv: Sequence[str],
        transport: Transport,
        *,
        patience: Patience | None = None,
    ) -> AgentReply:
        """The answer to a turn."""
        return await run_turn(
            turn,
            argv,
            transport,
            self.program,
            env=self._environment(turn.options),
            grace_s=self.grace_s,
            patience=patience,
        )


@attrs.frozen
class ProgramBackend(AnyProgram):
    """A program with a protocol of its own. Subclasses carry out the turn.

    ``options`` apply unless an agent or a step overrides them.
    """

    executable: str
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    name: ClassVar[str]
    program: ClassVar[Program]


WriteFile: TypeAlias = Callable[[str, str], str]
"""Writes a text to a private file of this name, kept until the turn ends; returns its path."""


@contextlib.contextmanager
def private_files(program: str, boundary: Any = None) -> Generator[WriteFile, None, None]:
    """A ``WriteFile`` for a temporary folder of this user alone, created with the first file.
    ``boundary`` is the sandbox that the program reads it in.
    """
    with contextlib.ExitStack() as stack:
        folders: list[Path] = []

        def write_file(name: str, text: str) -> str:
            if not folders:
                made = tempfile.TemporaryDirectory(prefix=f"handrail-{program}-")
                folders.append(Path(stack.enter_context(made)))
                if boundary is not None:
                    boundary.show(folders[0])
            file = folders[0] / name
            file.write_text(text, encoding="utf-8", errors="replace")
            return str(file)

        yield write_file


def child_environment(
    options: AgentOptions,
    program: str = "",
    *,
    drop: Iterable[str] = (),
    add: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What a program inherits of this process's environment, without the names in ``drop``.
    ``add``, which a backend needs for it, overrides it; the options' variables override both.
    """
    left_out = frozenset(drop)
    sandbox = chosen_sandbox(options.sandbox)
    around = inherited(options.inherit_env, sandbox, "safe", needs_of(program))
    kept = {name: value for name, value in around.items() if name not in left_out}
    return {**kept, **(add or {}), **(options.env or {})}


def working_folder(options: AgentOptions) -> str:
    """The working folder of the options, or else this process's."""
    return str(Path(options.cwd or ".").absolute())


def added_folders(options: AgentOptions) -> list[str]:
    """The folders of ``add_dirs``, absolute; relative ones start at the working folder."""
    return [str(Path(working_folder(options), one)) for one in options.add_dirs or ()]
