"""Cassettes: the prompts, answers and changes of agents, recorded once and replayed offline."""

from __future__ import annotations

import difflib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from handrail.agents.cassette.file import PortableTexts, Recording, data_of, recording_of, to_text
from handrail.errors import DefinitionError, HandrailError
from handrail.model.agent_options import NO_OPTIONS, WATCHDOGS, AgentOptions
from handrail.model.events import Notice
from handrail.model.launch import AgentError
from handrail.model.paths import on_disk
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn, Capabilities, capabilities_of
from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, secret_values
from handrail.typed.jsonsafe import Json, json_safe
from handrail.workspace.errors import RECORD_AGAIN
from handrail.workspace.patch import WorkingTree, working_tree
from handrail.workspace.places import folder_of


class RecordingBackend:
    """Passes turns to a cassette, and everything else to the backend."""

    def __init__(self, cassette: Cassette, backend: AgentBackend, secrets: Secrets) -> None:
        self.own_folders = (cassette.folder,)
        """The folder of its recordings: changes there are not an agent's."""
        self._cassette = cassette
        self._backend = backend
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"<{self._backend!r} with a cassette>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @property
    def name(self) -> str:
        """The backend's name."""
        return self._backend.name

    @property
    def capabilities(self) -> Capabilities:
        """The backend's capabilities."""
        return capabilities_of(self._backend)

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The reply, recorded or replayed; see ``Cassette``."""
        own: AgentOptions = getattr(self._backend, "options", NO_OPTIONS)
        around = {**os.environ, **_variables(turn.options.over(own))}
        mask = Mask(secret_values(self._secrets, around))
        return await self._cassette.complete(turn, self._backend, mask)


def _variables(options: AgentOptions) -> dict[str, str]:
    """The variables that the options set for programs."""
    given: list[Mapping[str, Any]] = [options.env or {}]
    for server in (options.mcp_servers or {}).values():
        more = server.get("env")
        if isinstance(more, Mapping):
            given.append(cast("Mapping[str, Any]", more))
    return {name: str(value) for variables in given for name, value in variables.items()}


Mode: TypeAlias = Literal["record", "replay", "auto"]

_MODES = ("record", "replay", "auto")


class Cassette:
    """Recordings of agents in a folder: ``<agent>/<path of the step>-<number>.json``, each with a
    ``.patch`` of the agent's changes to the working tree, if it made any and git knows the tree.

    ``"record"`` launches agents and writes what they do, replacing earlier recordings of the same
    agents and steps. ``"replay"`` launches none: it emits notices, answers or fails as recorded,
    and applies the patch. ``"auto"`` replays existing recordings and records missing ones.

    Recordings are found by agent, path and order of launches. One counts only if it has the same
    prompt; the folder of the working tree may differ. Values of secret variables and known shapes
    of tokens are masked in all that is written, and so also in replays. What an agent committed is
    replayed as uncommitted changes. Mutable: it counts the launches.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        mode: Mode = "replay",
        *,
        secrets: Secrets | None = None,
    ) -> None:
        if mode not in _MODES:
            raise DefinitionError(
                f"the mode of a cassette is 'record', 'replay' or 'auto', got {mode!r}"
            )
        self.folder = Path(folder).resolve()
        self.mode: Mode = mode
        self._secrets = secrets
        self._last: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        return f"<Cassette {str(self.folder)!r}, {self.mode}>"

    def wrap(self, backend: AgentBackend, secrets: Secrets | None = None) -> AgentBackend:
        """A backend that records this one, or replays its recordings.

        ``secrets`` are those to mask if the cassette has none of its own.
        """
        chosen = self._secrets or secrets or Secrets()
        return RecordingBackend(self, backend, chosen)

    def recordings(self) -> tuple[Path, ...]:
        """The files of all recordings."""
        found = [file for file in self.folder.rglob("*.json") if _split_number(file)[1]]
        return tuple(sorted(found, key=lambda file: (file.parent, *_split_number(file))))

    async def complete(self, turn: AgentTurn, backend: AgentBackend, mask: Mask) -> AgentReply:
        """The reply to a turn: as recorded, or the backend's, which is then recorded.

        Raises:
            AgentError: as recorded, or as the backend raised it.
            CassetteMismatch, CassetteMissing, PatchRefused: the turn cannot be replayed.
        """
        folder = folder_of(turn.options, backend)
        tree = await working_tree(folder, f"{turn.run_id}/{turn.path}/cassette")
        texts = PortableTexts(tree.root, mask)
        key = (turn.agent, turn.path)
        before = self._last.get(key, 0)
        number = self._last[key] = self._number(turn)
        fresh = self.mode == "auto" and not self._file(turn, number).exists()
        try:
            if self.mode == "record" or fresh:
                return await self._record(turn, number, backend, tree, texts)
            return await self._replay(turn, number, tree, texts)
        except BaseException as error:
            if not isinstance(error, AgentError) and self._last[key] == number:
                self._last[key] = before  # nothing was recorded or replayed: it does not count
            raise

    # -- where recordings are -------------------------------------------------------------------

    def _file(self, turn: AgentTurn, number: int) -> Path:
        *above, name = (on_disk(part) for part in turn.path.split("/"))
        return self.folder.joinpath(on_disk(turn.agent), *above, f"{name}-{number}.json")

    def _number(self, turn: AgentTurn) -> int:
        """The number of a turn's recording: the last one's plus 1; at first, from its launch."""
        if last := self._last.get((turn.agent, turn.path), 0):
            return last + 1
        there = max((number for number, _ in self._recordings_of(turn)), default=0)
        if self.mode == "record":
            return 1 if turn.launch <= 1 else there + 1
        return max(1, min(turn.launch, there + 1 if self.mode == "auto" else there))

    def _recordings_of(self, turn: AgentTurn) -> Iterator[tuple[int, Path]]:
        """The recordings of a turn's agent and path, with their numbers."""
        first = self._file(turn, 0)
        name, _ = _split_number(first)
        for file in first.parent.glob("*.json") if first.parent.is_dir() else ():
            here, number = _split_number(file)
            if here == name and number:
                yield number, file

    # -- recording ------------------------------------------------------------------------------

    async def _record(
        self,
        turn: AgentTurn,
        number: int,
        backend: AgentBackend,
        tree: WorkingTree,
        texts: PortableTexts,
    ) -> AgentReply:
        patch = b""
        change: dict[str, Json] = {"none": tree.why_not}
        with tree.watched([self.folder]) as watched:
            if watched is not None:
                await watched.begin()
            ended, notices = await _run_backend(turn, backend)
            if watched is not None:
                patch, change = await watched.change(texts.mask)
        if patch:
            change = {"patch": self._file(turn, number).with_suffix(".patch").name, **change}
        recording = Recording(
            agent=turn.agent,
            path=turn.path,
            launch=number,
            backend=backend.name,
            prompt=turn.prompt,
            asked=_request_data(turn),
            notices=texts.pieces(notices),
            ended=ended,
            change=change,
            recorded_at=_time(turn),
        )
        self._write(turn, number, to_text(texts.to_file(recording.data())), patch)
        if isinstance(ended, AgentError):
            raise ended
        return ended

    def _write(self, turn: AgentTurn, number: int, text: str, patch: bytes) -> None:
        """Write a recording; the first one of an agent's step replaces all earlier ones."""
        file = self._file(turn, number)
        for old in [old for there, old in self._recordings_of(turn) if number in {1, there}]:
            old.unlink()
            old.with_suffix(".patch").unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        if patch:
            file.with_suffix(".patch").write_bytes(patch)
        file.write_bytes(text.encode("utf-8", "backslashreplace"))

    # -- replaying ------------------------------------------------------------------------------

    async def _replay(
        self, turn: AgentTurn, number: int, tree: WorkingTree, texts: PortableTexts
    ) -> AgentReply:
        file = self._file(turn, number)
        if not file.is_file():
            known = [f.relative_to(self.folder).as_posix() for f in self.recordings()]
            raise CassetteMissing(turn.agent, turn.path, number, str(self.folder), known)
        data = _data(file)
        prompt = texts.to_file(turn.prompt)
        if data["prompt"] != prompt:
            raise self._mismatch(turn, number, prompt)
        with _readable(file):
            recording = recording_of(texts.from_file(data), turn.path)
        if "patch" in recording.change:
            await tree.apply(file.with_name(str(recording.change["patch"])), [self.folder])
        for notice in recording.notices:
            turn.emit(notice)
        if isinstance(recording.ended, AgentError):
            raise recording.ended
        return recording.ended

    def _mismatch(self, turn: AgentTurn, number: int, prompt: str) -> CassetteMismatch:
        """The error for an unrecorded prompt, with the agent's nearest recorded prompt."""
        own = self.folder / on_disk(turn.agent)
        recorded = {
            file: str(_data(file)["prompt"])
            for file in self.recordings()
            if file.is_relative_to(own)
        }
        matcher = difflib.SequenceMatcher(b=prompt, autojunk=False)

        def nearness(file: Path) -> tuple[float, bool]:
            matcher.set_seq1(recorded[file])
            return matcher.quick_ratio(), file == self._file(turn, number)

        nearest = max(recorded, key=nearness)
        name = nearest.relative_to(self.folder).as_posix()
        lines = difflib.unified_diff(
            recorded[nearest].splitlines(), prompt.splitlines(), name, "now", lineterm=""
        )
        difference = "\n".join(lines) or "(the same words, recorded for another launch)"
        return CassetteMismatch(turn.agent, turn.path, number, name, difference)


def cassette(
    folder: str | os.PathLike[str], mode: Mode = "replay", *, secrets: Secrets | None = None
) -> Cassette:
    """A ``Cassette``."""
    return Cassette(folder, mode, secrets=secrets)


async def _run_backend(
    turn: AgentTurn, backend: AgentBackend
) -> tuple[AgentReply | AgentError, list[Notice]]:
    """A backend's reply or error, and the notices that it emitted."""
    notices: list[Notice] = []

    def emit(notice: Notice) -> None:
        notices.append(notice)
        turn.emit(notice)

    try:
        return await backend.complete(replace(turn, emit=emit)), notices
    except AgentError as error:
        return error, notices


def _time(turn: AgentTurn) -> str:
    return "" if turn.now is None else datetime.fromtimestamp(turn.now(), UTC).isoformat()


def _request_data(turn: AgentTurn) -> dict[str, Json]:
    """What a turn asks besides the prompt, as far as it may affect the answer."""
    given = {name: getattr(turn.options, name) for name in turn.options.given}
    asked = {name: json_safe(value) for name, value in given.items() if name not in WATCHDOGS}
    for name in ("env", "mcp_servers"):  # their values may be secret
        if name in asked:
            asked[name] = sorted(given[name])
    if turn.session is not None:
        asked |= {"session": turn.session, "fork": turn.fork, "compact": turn.compact}
    return asked


def _split_number(file: Path) -> tuple[str, int]:
    """The name and the number of a recording's file; 0 for any other file."""
    name, _, number = file.stem.rpartition("-")
    return (name, int(number)) if number.isdecimal() else (file.stem, 0)


def _data(file: Path) -> dict[str, Any]:
    with _readable(file):
        return data_of(file.read_text("utf-8"))


@contextmanager
def _readable(file: Path) -> Generator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        why = f"{file} cannot be read as a recording of an agent: {error!r}"
        raise DefinitionError(why) from None


_SHOWN = 20


class CassetteMismatch(HandrailError):
    """An agent has another prompt than the recorded one.

    ``recording`` is the file of the nearest recording, ``difference`` a unified diff from its
    prompt to the current one.
    """

    def __init__(self, agent: str, path: str, launch: int, recording: str, difference: str) -> None:
        super().__init__(agent, path, launch, recording, difference)
        self.agent = agent
        self.path = path
        self.launch = launch
        self.recording = recording
        self.difference = difference

    def __str__(self) -> str:
        return (
            f"launch {self.launch} of agent {self.agent!r} at {self.path!r} has another prompt "
            f"than the nearest recording, {self.recording}:\n{self.difference}\n{RECORD_AGAIN}"
        )


class CassetteMissing(HandrailError):
    """A launch of an agent was not recorded; ``known`` are the existing recordings."""

    def __init__(
        self, agent: str, path: str, launch: int, folder: str, known: Sequence[str]
    ) -> None:
        super().__init__(agent, path, launch, folder, tuple(known))
        self.agent = agent
        self.path = path
        self.launch = launch
        self.folder = folder
        self.known = tuple(known)

    def __str__(self) -> str:
        more = len(self.known) - _SHOWN
        shown = ", ".join(self.known[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return (
            f"launch {self.launch} of agent {self.agent!r} at {self.path!r} is not recorded in "
            f"{self.folder}. Recorded: {shown or 'nothing'}. {RECORD_AGAIN}"
        )
