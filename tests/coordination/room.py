"""A hub without sockets, and those who talk with it by name; what each is sent is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from handrail.coordination.hub.hub import Hub
from handrail.coordination.hub.records import Put
from handrail.coordination.hub.state import Close, Reaction, Settings

Heard = dict[str, list[dict[str, Any]]]


class Room:
    """``clock`` is the time of all that happens; what is recorded is in ``kept``."""

    def __init__(self, records: Iterable[Put] = (), **settings: Any) -> None:
        self.clock = 1_000.0
        self.settings = Settings(hub_id="syn-0", **settings)
        self.hub = Hub(self.settings, records, self.clock)
        self.kept: dict[tuple[str, str], Put] = {(put.kind, put.key): put for put in records}
        self.sockets: dict[str, int] = {}
        self._last = 0

    def again(self) -> Room:
        """A room with a hub that is made of what this one has recorded."""
        room = Room(tuple(self.kept.values()))
        room.settings = self.settings
        room.clock = self.clock
        room.hub = Hub(self.settings, tuple(self.kept.values()), self.clock)
        return room

    # -- what happens ------------------------------------------------------------------------------

    def join(self, *names: str, **fields: Any) -> Heard:
        """Sockets that say their names; the same name twice is `name`, then `name/2`."""
        heard: Heard = {}
        for name in names:
            merge(heard, self.open(name))
            merge(heard, self.say(name, "heartbeat", payload="online", **fields))
        return heard

    def open(self, who: str) -> Heard:
        """A socket that says nothing."""
        self._last += 1
        self.sockets[who] = self._last
        return self._heard(self.hub.on_open(self._last, self.clock))

    def say(self, who: str, kind: str, /, **fields: Any) -> Heard:
        """A message, with what a client sends besides."""
        frame = {"sender": who, "target": "System", "type": kind, "payload": "", **fields}
        return self.send(who, json.dumps({"timestamp": self.clock, **frame}))

    def send(self, who: str, text: str | bytes) -> Heard:
        """Any text."""
        return self._heard(self.hub.on_message(self.sockets[who], text, self.clock))

    def leave(self, who: str) -> Heard:
        """The end of a socket."""
        return self._heard(self.hub.on_close(self.sockets.pop(who), self.clock))

    def wait(self, seconds: float) -> Heard:
        """Time passes."""
        self.clock += seconds
        return self._heard(self.hub.tick(self.clock))

    # -- what is heard -----------------------------------------------------------------------------

    def ask(self, who: str, kind: str, /, **fields: Any) -> dict[str, Any]:
        """The last thing that one is sent because of their own message."""
        return self.say(who, kind, **fields)[who][-1]

    def state(self) -> dict[str, Any]:
        """The snapshot of a state request of somebody who is there."""
        who = next(iter(self.sockets))
        snapshot: dict[str, Any] = self.ask(who, "state_request")["snapshot"]
        return snapshot

    def claims(self) -> dict[str, dict[str, Any]]:
        """What is held, by task."""
        return {claim["task_id"]: claim for claim in self.state()["active_claims"]}

    def _heard(self, reaction: Reaction) -> Heard:
        if reaction.mistake is not None:
            raise reaction.mistake
        for put in reaction.records:
            self.kept.pop((put.kind, put.key), None)
            if put.value is not None:
                self.kept[put.kind, put.key] = put
        names = {number: name for name, number in self.sockets.items()}
        heard: Heard = {}
        for output in reaction.out:
            if isinstance(output, Close):
                frame = {"close": output.code, "reason": output.reason}
                heard.setdefault(names[output.socket], []).append(frame)
                continue
            for number in output.to:
                if number in names:
                    heard.setdefault(names[number], []).append(json.loads(output.text))
        return heard


def merge(heard: Heard, more: Heard) -> None:
    """Add what was heard later."""
    for name, frames in more.items():
        heard.setdefault(name, []).extend(frames)


def types(frames: Iterable[dict[str, Any]]) -> list[str]:
    """The types of messages, in order."""
    return [frame.get("type", "close") for frame in frames]
