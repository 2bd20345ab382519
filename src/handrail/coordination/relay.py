"""What a hub sends to all, as lines of a file for programs that only read along.

Source: the lite relay log of synapse-channel 0.32.0. A line has version, number of the chat or 0,
type, sender, target, payload, time in milliseconds, and the hub's name.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class RelayLog:
    """Mutable: appends to a file, of which it keeps the last ``most`` lines, at most twice as many.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, most: int = 5_000) -> None:
        self._path = path
        self._most = max(1, most)
        self._appended = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, text: str) -> None:
        """Add a message."""
        frame = msgspec.json.decode(text)
        line = {
            "v": 1,
            "i": frame.get("msg_id", 0),
            "ty": frame["type"],
            "s": frame["sender"],
            "to": frame.get("target", "all"),
            "p": frame.get("payload", ""),
            "t": int(frame["timestamp"] * 1000),
            "h": frame["hub_id"],
        }
        self._file.write(f"{msgspec.json.encode(line).decode()}\n")
        self._appended += 1

    def flush(self) -> None:
        """Let readers see what was added."""
        self._file.flush()
        if self._appended >= self._most:
            self._trim()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _trim(self) -> None:
        self._appended = 0
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if len(lines) > self._most:
            self._file.close()
            self._path.write_text("".join(lines[-self._most :]), encoding="utf-8")
            self._file = self._path.open("a", encoding="utf-8")
