"""What copilot says and thinks, each piece of it once."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.agents.programs.loose_json import Object, text_in, whole_in
from handrail.model.events import AgentMessage, AgentReasoning, Notice


class Said:
    """The messages and thoughts of a turn. Mutable.

    Pieces are kept until the whole comes, which is told instead of them; those of which no whole
    came by the end of the model's turn are told then. Of one turn the same thought, or the same
    message under the same name, is told once.
    """

    def __init__(self, path: str) -> None:
        self.text = ""
        self._path = path
        self._call = ""
        self._pieces: dict[str, list[str]] = {}
        self._thoughts: dict[str, list[str]] = {}
        self._told: set[str] = set()
        self._messages: set[tuple[str, str, int | None]] = set()
        self._whole: set[str] = set()

    def begin(self) -> None:
        """The model begins anew: what was said before may be said again."""
        self._told.clear()
        self._messages.clear()
        self._whole.clear()

    def message(self, data: Object) -> Iterator[Notice]:
        """A whole message, with the thought that led to it. Long ones come in several."""
        yield from self._thought(text_in(data, "reasoningText"))
        name, content = text_in(data, "messageId"), text_in(data, "content")
        self._pieces.pop(name, None)
        call, chunk = text_in(data, "apiCallId"), whole_in(data, "chunkIndex")
        if not content or (name and (name, content, chunk) in self._messages):
            return
        self._messages.add((name, content, chunk))
        self._whole.add(content.strip())
        goes_on = (chunk or 0) > 0 and call == self._call
        self.text = self.text + content if goes_on else content
        self._call = call
        yield AgentMessage(self._path, content)

    def piece(self, data: Object) -> None:
        """A piece of a message."""
        pieces = self._pieces.setdefault(text_in(data, "messageId"), [])
        pieces.append(text_in(data, "deltaContent"))

    def thought(self, data: Object) -> Iterator[Notice]:
        """A whole thought."""
        self._thoughts.pop(text_in(data, "reasoningId"), None)
        return self._thought(text_in(data, "content"))

    def thought_piece(self, data: Object) -> None:
        """A piece of a thought."""
        pieces = self._thoughts.setdefault(text_in(data, "reasoningId"), [])
        pieces.append(text_in(data, "deltaContent"))

    def rest(self) -> Iterator[Notice]:
        """What was said in pieces only, when no more can come."""
        thoughts, self._thoughts = self._thoughts, {}
        for pieces in thoughts.values():
            yield from self._thought("".join(pieces))
        begun, self._pieces = self._pieces, {}
        for pieces in begun.values():
            text = "".join(pieces)
            if text and text.strip() not in self._whole:
                self.text = text
                yield AgentMessage(self._path, text)

    def _thought(self, text: str) -> Iterator[Notice]:
        # The same thought comes with its message and by itself, under no common name.
        if text and text.strip() not in self._told:
            self._told.add(text.strip())
            yield AgentReasoning(self._path, text)
