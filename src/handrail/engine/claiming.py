"""Acquires the claims of a drive's steps before they begin, and releases them at their end.

Theory of operation. A leaf step that wants claims is a flight of kind ``CLAIM`` first: it waits in
the line for claims, and in no other. Once it has its claims it asks for a place within the run's
limits, and then it is performed. So a step that waits for a claim keeps no place from others, and
a step that has a place does not wait for a claim. The one exception, the merge of an agent's
worktree, frees its place before it waits.

Who waits for the same gets it in the order of the commands. To ask takes a while, for git is asked
for the repository and a thread opens the claims file, and it may take one step longer than another.
So steps ask one after another: the next one asks as soon as the one before it is in line, has its
claims, or has ended. Only the waiting in line is concurrent.

A composite holds its claims for all steps below it: the core asks for them with ``Claim``, and
begins none of those steps meanwhile. The engine checks such a step like one with claims of its own:
before it begins, and after it has ended, all claims that it depends on must still be held. If one
was lost, the step fails, whatever it returned: others may have worked on the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import msgspec

from handrail.core import commands as cmd
from handrail.core.attempt_ends import failure_event
from handrail.core.conductor import StepClaims
from handrail.engine.calls import Abandoned
from handrail.engine.loop import Loop
from handrail.engine.tasks import ABANDONED, STOPPED, Flight
from handrail.errors import (
    CancelledFromWithin,
    ClaimLost,
    ClaimsFailed,
    ClaimTimeout,
    DefinitionError,
)
from handrail.model import events as ev
from handrail.steps.leaves import AgentCall
from handrail.steps.verbs import Wanted

if TYPE_CHECKING:
    from handrail.ports.claims import Claim, Claimant, Claims, LaunchClaims, Resource
    from handrail.workspace.git import Repository

CLAIM: Final = "claim"
CLOSING_S = 30.0
"""How long releasing claims may take at the end of an attempt, or of the drive."""
Waiting: TypeAlias = cmd.Perform | cmd.Queue | cmd.Claim


class Claiming(StepClaims):
    """The claims of one drive. Mutable."""

    def __init__(
        self,
        loop: Loop,
        claims: Claims | None,
        shared: SharedClaims,
        *,
        folder_of: Callable[[cmd.Perform | cmd.Queue], Path | None],
    ) -> None:
        super().__init__(loop.conductor)
        self.held: dict[str, list[Claim]] = {}
        self._loop = loop
        self._configured = claims
        self._shared = shared
        self._folder_of = folder_of
        self._own: Claims | None = None
        self._blocked_by: dict[str, str] = {}
        """The holder of the claims that each path waits for."""
        self._to_replace: dict[str, Flight] = {}
        """Flights that wait for claims, by path, whose launch another one will replace: that one
        takes over the place in line."""
        self._granted: dict[str, cmd.Perform | cmd.Queue] = {}
        """Attempts and launches that have their claims and begin with the next job, by path."""
        self._turns: dict[Flight, anyio.Event] = {}
        """The flights that are not in line yet, in the order of their commands; each may ask once
        its event is set."""
        self._releasing: dict[int, Claim] = {}
        """The claims that are being released, by epoch."""
        self._one_released = anyio.Event()
        """Set when one of them has been released, and then replaced by a new event."""
        self._journal = loop.mark.removeprefix(loop.conductor.run_id).removeprefix("@")
        self._repositories: dict[Path, Repository | None] = {}

    @property
    def _claims(self) -> Claims:
        if self._configured is not None:
            return self._configured
        if self._own is None:
            self._own = self._shared.join()
        return self._own

    def _claimant(self, path: str) -> Claimant:
        from handrail.ports.claims import Claimant

        return Claimant(self._conductor.run_id, path, self._journal)

    # -- asking ---------------------------------------------------------------------------------

    def launch(self, command: cmd.Perform | cmd.Queue) -> None:
        """Put it into the line, once it has its claims."""
        flight = self._to_replace.pop(command.path, None)
        if flight is not None and not flight.finished:
            flight.command = command
        elif command.wanted is None or command.path in self.held:
            self._conductor.line.begin(command)
        else:
            self._ask(command, command.wanted)

    def withdraw(self, path: str, *, again: bool) -> cmd.Perform | cmd.Queue | None:
        """Take back what has its claims and has not begun."""
        command = self._granted.pop(path, None)
        flight = self._conductor.flights.get((path, CLAIM))
        if flight is not None and not again:
            self._end_turn(flight)
        if command is None and again and flight is not None and not flight.stopping:
            self._to_replace[path] = flight
            command = flight.command
        if not again and command is not None:
            self.give_back(path)
        return command

    def claim(self, command: cmd.Claim) -> None:
        """Ask for the claims of a composite."""
        self._ask(command, command.wanted)

    def _ask(self, command: Waiting, wanted: Wanted) -> None:
        loop = self._loop
        flight = Flight(command.path, CLAIM, command)
        turn = self._turns[flight] = anyio.Event()
        if len(self._turns) == 1:
            turn.set()
        loop.start(flight, lambda: self._acquire(flight, wanted, turn), loop.context())
        if wanted.wait_s:
            self._conductor.limit(command.path, CLAIM, wanted.wait_s)

    def _end_turn(self, flight: Flight) -> None:
        """Let the next flight ask: this one is in line, or asks no more."""
        self._turns.pop(flight, None)
        first = next(iter(self._turns.values()), None)
        if first is not None:
            first.set()

    async def _acquire(self, flight: Flight, wanted: Wanted, turn: anyio.Event) -> None:
        path = flight.path
        claimant = self._claimant(path)

        def note_claim(event: ev.OfClaims) -> None:
            flight.waits = isinstance(event, ev.ClaimWaiting)
            if isinstance(event, ev.ClaimWaiting):
                self._blocked_by[path] = event.holder
                self._end_turn(flight)
            self._loop.emit_notice(event)

        from handrail.ports.claims import ClaimRequest
        from handrail.workspace.claims.holding import acquire_claim

        await turn.wait()
        while self._releasing and wanted.wait_s == 0:  # do not refuse a claim being released
            await self._one_released.wait()
        for resources in await self._resources(flight.command, wanted):
            request = ClaimRequest(claimant, resources, None if wanted.wait_s != 0 else 0)
            claim = await acquire_claim(self._claims, request, path, note_claim)
            if flight.finished:  # the request was withdrawn meanwhile
                await self._release(claim)
                return
            self.held.setdefault(path, []).append(claim)

    async def _resources(self, command: Waiting, wanted: Wanted) -> list[tuple[Resource, ...]]:
        """The wanted resources, one tuple for each repository, in the same order for all steps."""
        from handrail.ports.claims import Resource
        from handrail.workspace.claims.resources import files_of
        from handrail.workspace.places import places_of, tree_name

        needs: list[Resource] = []
        run = self._conductor.machine.run
        node = run.nodes.get(command.path)
        tree = None if node is None else run.tree_of(node)
        here = Path.cwd() if tree is None else Path(tree.inside(str(Path.cwd())))
        for name in wanted.names:
            repository = await self._repository(here, command.path)
            common = "" if repository is None else str(repository.common)
            needs.append(Resource(name, repository=common))
        if wanted.worktree:
            repository = await self._repository(here, command.path)
            if repository is not None:
                places = places_of(repository.root, self._conductor.run_id, command.path)
                name = tree_name(places.branch)
                needs.append(Resource(name, repository=str(repository.common)))
        if wanted.patterns is not None:
            folder: Path | None = here
            if not isinstance(command, cmd.Claim) and isinstance(command.step.verb, AgentCall):
                folder = self._folder_of(command)
                if tree is not None and folder is not None:
                    folder = Path(tree.inside(str(folder)))
            repository = None if folder is None else await self._repository(folder, command.path)
            if repository is not None:
                needs.append(files_of(repository, wanted.patterns))
            elif isinstance(command, cmd.Claim):
                raise DefinitionError(
                    f"step {command.path!r}: to hold files needs a git repository, and {here} is "
                    f"in none. Make it one (git init), or hold a name."
                )
        repositories = sorted({need.repository for need in needs})
        return [tuple(need for need in needs if need.repository == repo) for repo in repositories]

    async def _repository(self, folder: Path, path: str) -> Repository | None:
        from handrail.errors import CommandNotFound
        from handrail.workspace.git import repository_of

        if folder not in self._repositories:
            try:
                repository = await repository_of(folder, f"{self._loop.mark}/{path}/claims")
            except CommandNotFound:  # no git, or no folder: the step that works there reports it
                repository = None
            self._repositories[folder] = repository
        return self._repositories[folder]

    def on_finished(self, flight: Flight, outcome: Any) -> None:
        """Begin the step or composite that has its claims now, or report why it has none."""
        conductor, command, path = self._conductor, flight.command, flight.path
        self._end_turn(flight)
        behind = self._blocked_by.pop(path, "")
        if flight.timed_out:
            what = _text_of(command.wanted)
            holders = [behind] if behind else []
            outcome = ClaimTimeout(str(self._claimant(path)), what, command.wanted.wait_s, holders)
        renewed = self._to_replace.pop(path, None) is not None
        if outcome is None and not renewed:
            if isinstance(command, cmd.Claim):
                conductor.receive(cmd.Evaluated(path, at=conductor.now()))
            else:
                self.held.setdefault(path, [])  # outside a repository there are no files to hold
                self._granted[path] = command
                conductor.queue_job(partial(self._begin_granted, path))
            return
        self.give_back(path)
        if outcome is STOPPED or outcome is ABANDONED:
            if conductor.ends is not None:
                return
            if not isinstance(command, cmd.Claim):
                conductor.report_stop(path, command.attempt)
                return
            outcome = CancelledFromWithin(path)
        if isinstance(command, cmd.Claim):
            conductor.receive(cmd.Evaluated(path, error=outcome, at=conductor.now()))
        elif outcome is not None and not renewed:
            conductor.record(failure_event(command, outcome))

    def _begin_granted(self, path: str) -> None:
        command = self._granted.pop(path, None)
        if command is not None and path in self.held:
            self._conductor.line.begin(command)

    def clock_was_set(self, jump_s: float) -> None:
        """Shift the start of the attempts that wait here, for the clock jumped by ``jump_s``."""
        for flight in self._conductor.flights.values():
            command = flight.command
            if flight.kind == CLAIM and type(command) is cmd.Perform:
                since = command.started_at + jump_s
                flight.command = msgspec.structs.replace(command, started_at=since)

    # -- while claims are held ------------------------------------------------------------------

    def depends_on_claims(self, path: str) -> bool:
        """True if the step at this path, or one above it, holds claims."""
        return bool(self.held) and any(True for _ in self._needed_by(path))

    def _needed_by(self, path: str) -> Iterator[Claim]:
        yield from self.held.get(path, ())
        node = self._conductor.machine.run.nodes.get(path)
        above = None if node is None else node.parent
        while above is not None:
            yield from self.held.get(above.path, ())
            above = above.parent

    async def guarded(self, command: cmd.Perform, work: Callable[[], Any]) -> Any:
        """The end of an attempt; a failure, if a claim that it depends on was lost meanwhile."""
        path, needed = command.path, list(self._needed_by(command.path))
        keeps = False
        try:
            gone = await self._lost(path, needed)
            if gone is not None:
                return failure_event(command, gone)
            ended = await work()
            if not isinstance(ended, ev.StepCompleted):
                return ended
            gone = await self._lost(path, needed)
        except Abandoned:
            keeps = True  # its thread still runs
            raise
        finally:
            if not keeps:
                try:
                    with anyio.move_on_after(CLOSING_S, shield=True):
                        for claim in self.held.get(path, ()):
                            await self._release(claim)
                        self.held.pop(path, None)
                finally:
                    self.give_back(path)  # the rest, if it was stopped while it released
        if gone is not None:
            gone.usage = ended.result.usage
            return failure_event(command, gone)
        return ended

    async def _lost(self, path: str, needed: list[Claim]) -> ClaimLost | None:
        from handrail.workspace.claims.holding import find_lost_claim

        for claim in needed:
            gone = await find_lost_claim(self._claims, claim)
            if gone is not None:
                self._loop.emit_notice(ev.ClaimLost(path, gone.what, gone.epoch, gone.holder))
                return gone
        return None

    def of_launch(self, path: str) -> LaunchClaims:
        """The claims for a launch of the agent at this path: its files, and how to claim more."""
        from handrail.ports.claims import LaunchClaims

        own = self.held.get(path, ())
        files = next((claim for claim in own if any(its.tree for its in claim.resources)), None)
        return LaunchClaims(self._claims, files, partial(self._take, path))

    def _take(
        self, path: str, resources: tuple[Resource, ...]
    ) -> AbstractAsyncContextManager[Claim]:
        """Claim more for an attempt at work; its place is freed if the claim has to wait."""
        from handrail.ports.claims import ClaimRequest
        from handrail.workspace.claims.holding import hold_claim

        def note_claim(event: ev.OfClaims) -> None:
            if isinstance(event, ev.ClaimWaiting):
                self._loop.post(partial(self._conductor.line.release, path))
            self._loop.emit_notice(event)

        claimant = self._claimant(path)
        return hold_claim(self._claims, ClaimRequest(claimant, resources), path, note_claim)

    # -- releasing ------------------------------------------------------------------------------

    def give_back(self, path: str) -> None:
        """Release all claims of a step, and ask for none."""
        loop = self._loop
        flight = self._conductor.flights.get((path, CLAIM))
        if flight is not None:
            self._conductor.remove_flight(path, CLAIM)
            self._end_turn(flight)
            if not flight.stopping:
                loop.tasks.stop(flight)
        for claim in self.held.pop(path, ()):
            self._releasing[claim.epoch] = claim
            flight = Flight(path, CLAIM, None)
            flight.finished = True
            loop.tasks.start(flight, partial(self._release, claim), loop.context())

    async def _release(self, claim: Claim) -> None:
        with suppress(ClaimsFailed):  # the claim ends with the process
            await self._claims.release(claim)
        if self._releasing.pop(claim.epoch, None) is not None:
            self._one_released.set()
            self._one_released = anyio.Event()
            self._loop.post(_nothing)  # the driver counts again how many are at work

    @property
    def at_work(self) -> int:
        """How many claims are being released: other steps may wait for them."""
        return len(self._releasing)

    async def close(self) -> None:
        """Release all claims: none outlives the drive."""
        if self._configured is None and self._own is None:
            return
        with anyio.move_on_after(CLOSING_S, shield=True):
            held = [claim for own in self.held.values() for claim in own]
            for claim in [*self._releasing.values(), *held]:
                await self._release(claim)
            self.held.clear()
            if self._own is not None:
                with suppress(ClaimsFailed):
                    await self._shared.leave()


class SharedClaims:
    """The claims of this machine, for all drives of an executor: so one thread looks for all of
    them. Open while a drive uses them. Mutable; for any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: Claims | None = None
        self._drives = 0

    def join(self) -> Claims:
        """Count one more drive."""
        from handrail.workspace.claims.local import LocalClaims

        with self._lock:
            self._drives += 1
            self._claims = self._claims or LocalClaims()
            return self._claims

    async def leave(self) -> None:
        """Count one less; the last one closes the claims."""
        with self._lock:
            self._drives -= 1
            claims = None if self._drives else self._claims
            if claims is not None:
                self._claims = None
        if claims is not None:
            await claims.close()


def _nothing() -> None:
    """A job that only wakes the loop."""


def _text_of(wanted: Wanted) -> str:
    return " and ".join((*wanted.names, ", ".join(wanted.patterns or ()))).removesuffix(" and ")
