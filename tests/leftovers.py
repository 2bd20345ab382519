"""What a test left running or open, found without the code under test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def nothing_left(marker: str) -> Iterator[None]:
    """Afterwards no process has this text in its environment, no child and no file is left."""
    children, files = children_of_this_process(), open_files()
    yield
    assert lasting_carriers_of(marker) == []
    assert children_of_this_process() <= children
    assert lasting_files(files) <= files


def carriers_of(marker: str) -> list[str]:
    """The processes whose environment has this text."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if marker.encode() in (folder / "environ").read_bytes():
                    found.append(f"{folder.name}: {(folder / 'cmdline').read_bytes()!r}")
            except OSError:
                continue
    return found


def lasting_carriers_of(marker: str) -> list[str]:
    """Those that are still there when one that was sent SIGKILL has had the time to go."""
    deadline = time.monotonic() + 10
    while (found := carriers_of(marker)) and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: TID251  # the loop is gone by now
    return found


def children_of_this_process() -> set[str]:
    """Zombies are among them."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended since it was listed
            found.update((task / "children").read_text().split())
    return found


def open_files() -> int:
    """How many file descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def lasting_files(before: int) -> int:
    """How many it still has when threads and loops that have ended had the time to close theirs.

    There may be fewer than before: what an earlier test had dropped may be closed by now.
    """
    deadline = time.monotonic() + 10
    while (found := open_files()) > before and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: TID251  # as above
    return found


def journal_threads() -> set[threading.Thread]:
    """The threads of journals; those of an earlier test may still be there."""
    return {one for one in threading.enumerate() if one.name.startswith("handrail journal")}
