"""Events as lines of JSON, for files that other programs read."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from handrail.errors import WrongUse
from handrail.model import events as ev
from handrail.model.events import Event, Progress
from handrail.secrets.masking import Mask
from handrail.sinks.masks import Masks, mask_data
from handrail.system.own_files import open_private
from handrail.typed.jsonsafe import json_safe


class TextFile(Protocol):
    """An open text file, such as ``sys.stdout`` or an ``io.StringIO``."""

    def write(self, text: str, /) -> Any:
        """Write the text."""
        ...

    def flush(self) -> Any:
        """Pass buffered text on."""
        ...


class JsonlSink:
    """Appends one JSON object a line for every event: ``type`` (the class), then its fields.

    A value that JSON cannot express becomes text, so no event is refused. Every line is flushed
    before the run continues. ``target`` is the path of a file, or an open text file, which stays
    open. The file at a path is created with its folder if need be, and open only during drives.

    Raises:
        WrongUse: ``target`` is neither.
    """

    def __init__(self, target: str | PathLike[str] | TextFile) -> None:
        self._path: Path | None = None
        self._file: Any = None
        self._runs: set[str] = set()
        self._masks = Masks()
        if isinstance(target, (str, PathLike)):
            self._path = Path(target)
        elif callable(getattr(target, "write", None)) and callable(getattr(target, "flush", None)):
            self._file = target
        else:
            raise WrongUse(f"JsonlSink takes a path or an open text file, got {target!r}")

    def mask_with(self, run_id: str, mask: Mask) -> None:
        """Mask the secrets of this run in its lines."""
        self._masks.take(run_id, mask)

    def emit(self, event: Event | Progress, /) -> None:
        """Write the event's line."""
        if self._file is None:
            self._file = self._open()
        self._file.write(f"{line_of(event, self._masks.of(event))}\n")
        self._file.flush()
        if isinstance(event, ev.DriveBegan):
            self._runs.add(event.run_id)
        elif isinstance(event, ev.DriveEnded):
            self._runs.discard(event.run_id)
        if not self._runs:
            self.close()

    def close(self) -> None:
        """Close the file if this sink opened it; a later event opens it again."""
        self._runs.clear()
        if self._path is not None and self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()  # after a run that never ended, nobody else would

    def _open(self) -> Any:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_private(self._path, "a", encoding="utf-8", newline="\n")


def line_of(event: Event | Progress, mask: Mask | None = None) -> str:
    """The event as one line of JSON, without the line's end."""
    fields = mask_data(json_safe(event), mask)
    assert isinstance(fields, dict)
    data = {"type": type(event).__name__, **fields}
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
