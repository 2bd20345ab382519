"""``--record DIR`` and ``--replay DIR``: agents through a cassette."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from handrail.cli.exits import Refused

if TYPE_CHECKING:
    from handrail.agents.cassette.cassette import Cassette


def cassette_of(record: Path | None, replay: Path | None) -> Cassette | None:
    """The cassette that the options ask for, if they do.

    Raises:
        Refused: they ask for two, or for one that is not there.
    """
    if record is None and replay is None:
        return None
    if record is not None and replay is not None:
        raise Refused("--record and --replay", "cannot be given together", "Leave one out.")
    from handrail.agents.cassette.cassette import Cassette

    if record is not None:
        return Cassette(record, "record")
    assert replay is not None
    if not replay.is_dir():
        raise Refused(f"--replay {replay}", "there is no such folder", "--record makes one.")
    return Cassette(replay, "replay")
