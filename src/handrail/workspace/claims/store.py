"""Claims in one SQLite file, for all processes that open it.

Theory of operation. The file has two tables: the claims, and the requests in line. A row's JSON
says who claims what; its columns say which process keeps it (see ``system.owners``). Each decision
is one write transaction: it drops rows of dead processes, reads all rows (see ``deciding``), and
changes its own. So no process decides without the other's latest changes, and no server is needed.

A claim's *epoch* is the value of a counter that every grant and every end raise by one. When a
claim of files has ended, its row stays, with the counter's value at the end: so the file can tell
who had what at any time since an epoch. The row goes when no question can reach back to it: no
older claim of files is live, and none was ended by a crash, whose step will look further back when
it runs again.

The process of a dropped claim died; that of a taken one did not renew it for too long. Either may
have left programs running, such as the agent of a killed run. These carry the mark of their step,
and are killed before another claimant gets the claim.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import msgspec

from handrail.errors import ClaimDeadlock, ClaimsFailed, ClaimTimeout, HandrailError
from handrail.model.dataclass import dataclass
from handrail.ports.claims import (
    Claim,
    Claimant,
    ClaimList,
    ClaimRequest,
    ClaimWait,
    Resource,
    text_of,
)
from handrail.system.forks import locks_to_fork
from handrail.system.marker import is_inside, kill_marked
from handrail.system.owners import (
    Owner,
    any_dead,
    forget,
    host,
    is_alive,
    is_renewed,
    of_process,
    place,
    this_process,
)
from handrail.system.sqlite import (
    Cause,
    FileIdentity,
    cause_of,
    file_identity,
    snapshot,
    transaction,
    why_of,
)
from handrail.workspace.claims.deciding import KEEPS_S, ClaimSnapshot, QueuedRequest, related

_BUSY_S = 10.0
_APPLICATION_ID = 0x6872636C  # "hrcl"
_VERSION = 1
_SCHEMA = """
CREATE TABLE counter (value INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
CREATE TABLE claims (
    epoch INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    files INTEGER NOT NULL,
    token TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    since REAL NOT NULL,
    expires_at REAL NOT NULL,
    until REAL,
    ended INTEGER,
    cut INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX live_claims ON claims (epoch) WHERE ended IS NULL;
CREATE INDEX cut_claims ON claims (epoch) WHERE cut;
CREATE TABLE line (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    body TEXT NOT NULL,
    token TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    since REAL NOT NULL,
    expires_at REAL NOT NULL
);
"""
_CLAIMS = """SELECT epoch, body, until, token, pid, start_ticks, host, boot, since, expires_at
    FROM claims"""
_ADD_CLAIM = """INSERT INTO claims
    (epoch, body, files, until, since, token, pid, start_ticks, host, boot, expires_at)
    SELECT ?, body, ?, ?, ?, token, pid, start_ticks, host, boot, expires_at
    FROM line WHERE number = ?"""
_LINE = """SELECT number, body, token, pid, start_ticks, host, boot, since, expires_at
    FROM line ORDER BY number"""
_ADD_TO_LINE = """INSERT INTO line
    (number, body, token, pid, start_ticks, host, boot, since, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
_RENEW = (
    """UPDATE claims SET boot = ?, expires_at = ?
    WHERE token IN (SELECT value FROM json_each(?))""",
    """UPDATE line SET boot = ?, expires_at = ?
    WHERE token IN (SELECT value FROM json_each(?))""",
)
_HINTS: Mapping[Cause, str] = {
    "full": "Free some space on its disk, then run the step again.",
    "write": (
        "handrail keeps who works on what there; it must be able to write the file, and to create "
        "files in its folder. Change the permissions, then run the step again."
    ),
    "locked": "Another program keeps it locked: an sqlite3 shell, perhaps. End that.",
    "disk": "Look at the disk and at the limits of the process (ulimit -f).",
    "place": "Something else is in its place. Move that away.",
    "other": "It is no file of handrail's. Move it away; a new one is made.",
    "": "Move the file away if it is damaged; a new one is made.",
}


class _Body(msgspec.Struct, frozen=True):
    """The JSON of a row."""

    claimant: Claimant
    resources: tuple[Resource, ...]


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A request's number in line, and the claimants in its way."""

    number: int
    behind: tuple[Claimant, ...]


class Store:
    """One claims file, opened when it is needed. Mutable; for any thread."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self.path = path
        self._lease_s = lease_s
        self.begin()
        locks_to_fork(self)

    def __del__(self) -> None:
        """Close the file: Python warns of a connection that nobody closed."""
        self.disconnect()

    def begin(self) -> None:
        """Start empty."""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: FileIdentity | None = None
        self._seen = -1
        self._rows: tuple[object, ...] = ()
        """What the last look read, and which claims and requests had not been renewed."""
        self._last = ClaimSnapshot((), ())
        """What it found in that."""
        self._claims: dict[int, Owner] = {}
        """The owners of this process's claims, by epoch."""
        self._queued: dict[int, tuple[ClaimRequest, Owner]] = {}
        self._unended: set[int] = set()
        """The epochs of claims that could not be ended yet, because the disk was full, say."""

    # -- requests -------------------------------------------------------------------------------

    def ask(self, request: ClaimRequest) -> Claim | QueuePosition:
        """Grant the request, or put it in line.

        Raises:
            ClaimTimeout: the request is not to wait. ClaimDeadlock: it would close a circle of
                waits. ClaimsFailed: the file cannot be used.
        """
        what = text_of(request.resources)
        with self._open(f"claiming {what}") as connection, transaction(connection):
            self._drop_dead(connection)
            owner = self._owner(request)
            values = (None, _encode(request), *astuple(owner))
            (number,) = connection.execute(_ADD_TO_LINE, values).fetchone()
            claims = self._snapshot(connection)
            claim = self._grant(connection, claims, claims.line[number], request, owner)
            if claim is not None:
                return claim
            self._refuse(claims, claims.line[number], request, owner)
            self._queued[number] = (request, owner)
            return QueuePosition(number, claims.in_the_way(claims.line[number]))

    def look(self, numbers: set[int]) -> dict[int, Claim | QueuePosition]:
        """Grant those of these requests that are free now; for the others, who is in their way.

        Raises:
            ClaimsFailed: the file cannot be used; the requests stay in line.
        """
        with self._open("looking at the line") as connection:
            with snapshot(connection):
                claims = self._snapshot(connection)
                known = claims.line.keys() & numbers
                changes = known != numbers or self._anything_dead(connection)
            one_by_one = (claims.in_the_way(claims.line[number]) for number in sorted(known))
            if not changes and all(one_by_one):
                return {
                    number: QueuePosition(number, claims.in_the_way(claims.line[number]))
                    for number in known
                }
            with transaction(connection):
                return self._look_again(connection, numbers)

    def leave(self, number: int) -> None:
        """Take a request out of the line."""
        queued = self._queued.pop(number, None)
        if queued is None:
            return
        forget(queued[1].token)
        with self._open("leaving the line") as connection:
            connection.execute("DELETE FROM line WHERE number = ?", (number,))

    # -- claims ---------------------------------------------------------------------------------

    def end(self, claim: Claim) -> None:
        """End a claim, of any process; if an own one cannot be ended, each renewal tries again."""
        owner = self._claims.pop(claim.epoch, None)
        if owner is not None:
            forget(owner.token)
            self._unended.add(claim.epoch)
        with (
            self._open(f"releasing {text_of(claim.resources)}") as connection,
            transaction(connection),
        ):
            if self._is_live(connection, claim):
                self._end(connection, claim.epoch)
                self._forget_history(connection, claim.claimant)
        self._unended.discard(claim.epoch)

    def is_held(self, claim: Claim) -> bool:
        """True if the claim has not ended; also renews this process's leases."""
        with (
            self._open(f"looking at {text_of(claim.resources)}") as connection,
            transaction(connection),
        ):
            self._drop_dead(connection)
            self._renew(connection)
            return self._is_live(connection, claim)

    def others_since(self, claim: Claim, since: int | None) -> list[Claim]:
        """The claims of files that others had at any time since an epoch."""
        after = claim.epoch if since is None else since
        with self._open("looking at what others held") as connection:
            rows = connection.execute(
                f"{_CLAIMS} WHERE files AND epoch <> ? AND (ended IS NULL OR ended > ?)"
                " ORDER BY epoch",
                (claim.epoch, after),
            ).fetchall()
        found = [_claim(row) for row in rows]
        return [other for other in found if not related(other.claimant, claim.claimant)]

    def listed(self) -> ClaimList:
        """All live claims, and all requests in line."""
        if not self.path.exists():
            return ClaimList()
        with self._open("listing") as connection:
            if self._anything_dead(connection):
                with transaction(connection):
                    self._drop_dead(connection)
            with snapshot(connection):
                claims = self._snapshot(connection)
        waiting = [
            ClaimWait(one.claimant, one.resources, one.since, claims.in_the_way(one))
            for one in claims.line.values()
        ]
        return ClaimList(tuple(claims.held.values()), tuple(waiting))

    # -- for the queue's thread -----------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if this process has claims or requests in the file, or claims still to end."""
        return bool(self._claims or self._queued or self._unended)

    def changed(self) -> bool:
        """True if another connection wrote the file, or replaced it, since the last call."""
        with self._open("looking for changes") as connection:
            version = int(connection.execute("PRAGMA data_version").fetchone()[0])
            changed, self._seen = version != self._seen, version
            return changed

    def renew(self) -> None:
        """Renew the leases of this process's claims and requests; retry the failed ends."""
        with self._open("renewing") as connection, transaction(connection):
            self._renew(connection)
            for epoch in list(self._unended):
                self._end(connection, epoch)
                self._unended.discard(epoch)

    def close(self) -> None:
        """End this process's claims, take its requests out of the line, and close the file."""
        with self._lock:
            for number in list(self._queued):
                with contextlib.suppress(ClaimsFailed):
                    self.leave(number)
            for epoch in list(self._claims):
                with contextlib.suppress(ClaimsFailed):
                    self._end_epoch(epoch)
            self.disconnect()

    def disconnect(self) -> None:
        """Close the file; the next call opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def before_fork(self) -> None:
        """Close the file, and block its use until the process has forked."""
        self._lock.acquire()
        self.disconnect()

    def after_fork_in_parent(self) -> None:
        """Allow use of the file again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Start empty: the parent's claims are not the child's."""
        self.begin()

    # -- inside a transaction -------------------------------------------------------------------

    def _look_again(
        self, connection: sqlite3.Connection, asked: set[int]
    ) -> dict[int, Claim | QueuePosition]:
        self._drop_dead(connection)
        numbers = sorted(self._queued.keys() & asked)
        line = self._snapshot(connection).line
        for number in numbers:
            if number not in line:  # the file was replaced by another one
                request, owner = self._queued[number]
                values = (number, _encode(request), *astuple(owner))
                connection.execute(_ADD_TO_LINE, values).fetchone()
        self._renew(connection)  # a claim begins with the lease of its request
        found: dict[int, Claim | QueuePosition] = {}
        for number in numbers:
            request, owner = self._queued[number]
            claims = self._snapshot(connection)
            claim = self._grant(connection, claims, claims.line[number], request, owner)
            if claim is None:
                found[number] = QueuePosition(number, claims.in_the_way(claims.line[number]))
            else:
                del self._queued[number]
                found[number] = claim
        return found

    def _refuse(
        self, claims: ClaimSnapshot, one: QueuedRequest, request: ClaimRequest, owner: Owner
    ) -> None:
        """Raise if the request may not wait; the rollback then takes it out of the line."""
        who, what = str(request.claimant), text_of(request.resources)
        circle = claims.circle(one)
        if circle:
            forget(owner.token)
            raise ClaimDeadlock(who, what, circle)
        if request.wait_s is not None and request.wait_s <= 0:
            forget(owner.token)
            raise ClaimTimeout(who, what, request.wait_s, [*map(str, claims.in_the_way(one))])

    def _grant(
        self,
        connection: sqlite3.Connection,
        claims: ClaimSnapshot,
        one: QueuedRequest,
        request: ClaimRequest,
        owner: Owner,
    ) -> Claim | None:
        if claims.in_the_way(one):
            return None
        for taken in claims.to_be_taken(one):
            self._cut(connection, taken)
        epoch = _next(connection)
        now = time.time()
        until = None if request.ttl_s is None else now + request.ttl_s
        files = any(resource.tree for resource in request.resources)
        connection.execute(_ADD_CLAIM, (epoch, files, until, now, one.number))
        connection.execute("DELETE FROM line WHERE number = ?", (one.number,))
        if owner.pid == os.getpid():
            self._claims[epoch] = owner
        return Claim(request.claimant, request.resources, epoch, now, until, owner.host, owner.pid)

    def _owner(self, request: ClaimRequest) -> Owner:
        """The process whose life the claim depends on; its pid is 0 if there is none."""
        now = time.time()
        if request.pid is not None and request.pid != os.getpid():
            return of_process(request.pid, now, self._lease_s)
        if request.ttl_s is None:
            return this_process(now, self._lease_s)
        return Owner("", 0, 0, host(), "", now, now + request.ttl_s)

    def _renew(self, connection: sqlite3.Connection) -> None:
        if not (owners := self._owners()):
            return
        tokens = msgspec.json.encode([owner.token for owner in owners]).decode()
        values = (place(self._lease_s), time.time() + self._lease_s, tokens)
        for statement in _RENEW:
            connection.execute(statement, values)

    def _snapshot(self, connection: sqlite3.Connection) -> ClaimSnapshot:
        """All live claims and requests in line, without requests whose lease has run out.

        Claims whose lease has run out are ``gone``: they may be taken.
        """
        now, mine = time.time(), {owner.token for owner in self._owners()}
        claims = connection.execute(f"{_CLAIMS} WHERE ended IS NULL").fetchall()
        line = connection.execute(_LINE).fetchall()
        # A claim with a ``ttl_s`` is never renewed, and this process's own are never gone.
        gone = {
            row[0]
            for row in claims
            if row[2] is None and row[3] not in mine and not is_renewed(_owner(row, 3), now)
        }
        late = {
            row[0] for row in line if row[2] not in mine and not is_renewed(_owner(row, 2), now)
        }
        rows = (claims, line, gone, late)
        if rows == self._rows:  # what was found in them still holds
            return self._last
        requests = [_queued_request(row) for row in line if row[0] not in late]
        self._rows, found = rows, ClaimSnapshot([_claim(row) for row in claims], requests, gone)
        if not found.same_as(self._last):  # else only leases were renewed
            self._last = found
        return self._last

    def _owners(self) -> list[Owner]:
        """This process as the owner of each of its claims and requests."""
        return [*self._claims.values(), *(owner for _, owner in self._queued.values())]

    def _anything_dead(self, connection: sqlite3.Connection) -> bool:
        now = time.time()
        rows = connection.execute(f"{_CLAIMS} WHERE ended IS NULL").fetchall()
        line = [_owner(row, 2) for row in connection.execute(_LINE)]
        return any(_is_dead(row, now) for row in rows) or any_dead(line, now)

    def _drop_dead(self, connection: sqlite3.Connection) -> None:
        """End the claims, and drop the requests, whose process is dead or whose time is over."""
        now = time.time()
        for row in connection.execute(f"{_CLAIMS} WHERE ended IS NULL").fetchall():
            if _is_dead(row, now):
                if row[2] is not None and row[2] <= now:
                    self._end(connection, row[0])
                else:
                    self._cut(connection, _claim(row))
        for row in connection.execute(_LINE).fetchall():
            if not is_alive(_owner(row, 2), now):
                connection.execute("DELETE FROM line WHERE number = ?", (row[0],))

    def _cut(self, connection: sqlite3.Connection, claim: Claim) -> None:
        """End a claim whose holder cannot; kill the programs that the holder left running."""
        connection.execute(
            "UPDATE claims SET cut = 1 WHERE epoch = ? AND files AND ended IS NULL", (claim.epoch,)
        )
        self._end(connection, claim.epoch)
        marker = marker_of(claim.claimant)
        if claim.host == host() and not is_inside(marker, os.environ):
            kill_marked(marker)

    def _end(self, connection: sqlite3.Connection, epoch: int) -> None:
        ended = _next(connection)
        connection.execute("DELETE FROM claims WHERE epoch = ? AND NOT files", (epoch,))
        connection.execute(
            "UPDATE claims SET ended = ? WHERE epoch = ? AND ended IS NULL", (ended, epoch)
        )

    def _end_epoch(self, epoch: int) -> None:
        forget(self._claims.pop(epoch).token)
        with self._open("releasing what is left") as connection, transaction(connection):
            self._end(connection, epoch)

    def _forget_history(self, connection: sqlite3.Connection, done: Claimant) -> None:
        """Drop ended claims that no question can reach, now that this claimant has released one."""
        for epoch, body in connection.execute(
            "SELECT epoch, body FROM claims WHERE cut"
        ).fetchall():
            if _decode(body).claimant == done:
                connection.execute("UPDATE claims SET cut = 0 WHERE epoch = ?", (epoch,))
        (oldest,) = connection.execute(
            "SELECT min(epoch) FROM claims WHERE files AND (ended IS NULL OR (cut AND since > ?))",
            (time.time() - KEEPS_S,),
        ).fetchone()
        if oldest is None:
            connection.execute("DELETE FROM claims WHERE ended IS NOT NULL")
        else:
            connection.execute("DELETE FROM claims WHERE ended < ?", (oldest,))

    def _is_live(self, connection: sqlite3.Connection, claim: Claim) -> bool:
        """True if the claim has not ended; in a new file, another claim may have its epoch."""
        row = connection.execute(
            "SELECT body, token FROM claims WHERE epoch = ? AND ended IS NULL", (claim.epoch,)
        ).fetchone()
        if row is None or _decode(row[0]).claimant != claim.claimant:
            return False
        owner = self._claims.get(claim.epoch)
        return owner is None or owner.token == str(row[1])

    # -- the file -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self, doing: str) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connect()
            except HandrailError:  # a ClaimTimeout is an OSError, too
                raise
            except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
                self.disconnect()
                raise self._failure(doing, error) from error

    def _failure(
        self, doing: str, error: sqlite3.Error | OSError | msgspec.MsgspecError
    ) -> ClaimsFailed:
        if isinstance(error, msgspec.MsgspecError):
            return ClaimsFailed(str(self.path), doing, str(error), _HINTS["other"])
        return ClaimsFailed(str(self.path), doing, why_of(error), _HINTS[cause_of(error)])

    def _connect(self) -> sqlite3.Connection:
        if self._connection is not None and self._file == file_identity(self.path):
            return self._connection
        self.disconnect()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            str(self.path), timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        file = file_identity(self.path)
        if file != self._file:
            self._unended.clear()
        self._connection, self._file, self._seen = connection, file, -1
        return connection


def marker_of(claimant: Claimant) -> str:
    """The mark that all processes started by a claimant carry."""
    run = f"{claimant.run}@{claimant.journal}" if claimant.journal else claimant.run
    return f"{run}/{claimant.path}" if claimant.path else run


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_mode = WAL")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application, version) == (_APPLICATION_ID, _VERSION):
        return
    with transaction(connection):  # another process may have created the tables meanwhile
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == _VERSION:
            return
        if version or tables:
            raise sqlite3.DatabaseError(f"it is of version {version}, known here is {_VERSION}")
        for statement in filter(str.strip, _SCHEMA.split(";\n")):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _next(connection: sqlite3.Connection) -> int:
    value = connection.execute("UPDATE counter SET value = value + 1 RETURNING value").fetchone()[0]
    return int(value)


def _encode(request: ClaimRequest) -> str:
    return msgspec.json.encode(_Body(request.claimant, request.resources)).decode()


@functools.lru_cache(1024)  # each look reads the whole line again
def _decode(body: str) -> _Body:
    return msgspec.json.decode(body, type=_Body)


def _owner(row: Sequence[Any], at: int) -> Owner:
    return Owner(*row[at : at + 7])


def _claim(row: Sequence[Any]) -> Claim:
    body, owner = _decode(row[1]), _owner(row, 3)
    where = owner.host, owner.pid
    return Claim(body.claimant, body.resources, row[0], owner.since, row[2], *where)


def _queued_request(row: Sequence[Any]) -> QueuedRequest:
    body = _decode(row[1])
    return QueuedRequest(row[0], body.claimant, body.resources, _owner(row, 2).since)


def _is_dead(row: Sequence[Any], now: float) -> bool:
    """True for a claim whose time is over, or whose process is dead."""
    until, owner = row[2], _owner(row, 3)
    if until is not None and until <= now:
        return True
    return bool(owner.pid) and not is_alive(owner, now)
