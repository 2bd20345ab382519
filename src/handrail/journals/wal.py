"""What SQLite's write-ahead log holds, read from outside SQLite.

A log is a header of 32 bytes and frames: 24 bytes of header and one page each. SQLite believes the
frames from the first on whose salts are the log's and whose running checksum is right, as far as
the last one that ends a transaction. What comes after is cut off without a word. Of a log that
begins anew the old frames stay behind the new ones, with older salts: that is no damage.

Here only the headers are looked at; a checksum of every page would take longer than the run. How
far SQLite believed is asked of SQLite: see ``cut_off``. That a log was cut just between two
transactions cannot be seen.

Nothing here opens the database or its ``-shm``: to close a file drops every lock that the process
holds on it, and SQLite's are on those two. On the ``-wal`` it has none.
Source: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import os
import struct
from collections import deque
from dataclasses import dataclass, field

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
_AS_BIG_ENDIAN = 1
_SYSTEM_PAGE = 4096
_OLDEST = 1 << 20
"""How many times a log can have begun anew and still have frames of then behind its end."""


@dataclass(frozen=True, slots=True)
class WalScan:
    """What the headers of a log say.

    ``commits``: the number (from 1) of the last frame that ends a transaction; ``strange`` counts
    the bytes behind the frames that neither this log nor an earlier one can have left there.
    """

    size_bytes: int = 0
    page_bytes: int = 0
    frames: int = 0
    commits: int = 0
    strange: int = 0
    ends: tuple[int, ...] = field(default=(), compare=False)
    """The numbers of the last frames that end a transaction, ``commits`` the last of them."""

    def ends_after(self, frame: int) -> int:
        """How many transactions end behind a frame, as far as the last ones are known."""
        return sum(1 for number in self.ends if number > frame)


def scan(wal: str) -> WalScan:
    """What the headers of the log in the file ``wal`` say; of none, nothing."""
    try:
        fd = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return WalScan()
    try:
        return _scan(fd, os.fstat(fd).st_size)
    except OSError:
        return WalScan()
    finally:
        os.close(fd)


def cut_off(found: WalScan, believed: int) -> str:
    """What was cut off the end of a log of which SQLite believed so many frames; empty if nothing.

    An unfinished transaction at the end is nothing: nobody was told that it was stored. Of one that
    ends as it should and is not as it was written nobody can say which it is: in a log that began
    anew an old page may stand behind the header of a frame that a killed process was writing.
    """
    if found.commits > believed:
        lost = found.commits - believed
        size = lost * (found.page_bytes + _FRAME.size)
        why = (
            ""
            if found.ends_after(believed) > 1
            else ", or not written to their end by a killed process"
        )
        return (
            f"the last {lost} of {found.commits} frames of the write-ahead log ({size} bytes) were "
            f"not as they were written{why}"
        )
    if found.strange:
        return f"the write-ahead log ended in {found.strange} bytes that are no whole frames of it"
    return ""


def _is_broken_off(piece: bytes, size: int, salts: tuple[int, int]) -> bool:
    """True for what a write leaves whose process is killed in its midst: SQLite writes the header
    of a frame, then its page, and the system stops at a page of its own. Nobody was told that it
    was stored.
    """
    if len(piece) == _FRAME.size:
        return _FRAME.unpack(piece)[2:4] == salts
    return size % _SYSTEM_PAGE == 0


def _scan(fd: int, size: int) -> WalScan:
    header = os.pread(fd, _HEADER.size, 0)
    if not header.strip(b"\0"):
        return WalScan(size)
    if len(header) < _HEADER.size:
        return WalScan(size, strange=size)
    magic, _, page, _, salt, salt_2, _, _ = _HEADER.unpack(header)
    if magic | _AS_BIG_ENDIAN != _MAGIC | _AS_BIG_ENDIAN or not 512 <= page <= 65536:
        return WalScan(size, strange=size)
    frame_bytes = _FRAME.size + page
    whole, rest = divmod(size - _HEADER.size, frame_bytes)
    frames = commits = strange = 0
    last: deque[int] = deque(maxlen=2)
    ours = True
    for number in range(whole):
        raw = os.pread(fd, _FRAME.size, _HEADER.size + number * frame_bytes)
        if len(raw) < _FRAME.size:
            break  # somebody made it shorter meanwhile
        _, ends, theirs, theirs_2, _, _ = _FRAME.unpack(raw)
        ours = ours and (theirs, theirs_2) == (salt, salt_2)
        if ours:
            frames += 1
            if ends:
                commits = number + 1
                last.append(commits)
        elif raw.strip(b"\0") and not 0 < (salt - theirs) % (1 << 32) <= _OLDEST:
            strange += frame_bytes
    piece = os.pread(fd, rest, size - rest) if rest else b""
    if piece.strip(b"\0") and not _is_broken_off(piece, size, (salt, salt_2)):
        strange += rest
    return WalScan(size, page, frames, commits, strange, tuple(last))
