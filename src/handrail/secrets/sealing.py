"""JSON text without its secrets, and with them restored.

A string that contains the value of a secret variable is written as the text around the value, and
the name of the variable::

    {"$": "secret", "v": ["Bearer ", {"env": "API_KEY"}]}

``{"env": "API_KEY", "as": "json"}`` is the value as JSON writes it inside a string; other spellings
are the keys of ``spellings.SPELLINGS``. ``{"env": "API_KEY", "of": "line 2"}`` is a part of the
value: see ``spellings.parts_of``. An object with a secret in its keys is
``{"$": "secret", "pairs": [[key, value], ...]}``. Base64 text with a secret in its bytes is
``{"$": "secret", "base64": [...]}``, where each text in the list is base64. A token that is known
by its shape alone is cut to its first and last 4 characters; that cannot be undone.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec

from handrail.secrets.spellings import SHORTEST, spellings_of, utf8
from handrail.secrets.tokens import may_contain_token, without_tokens
from handrail.secrets.values import SecretFinder, SecretValues, finder_of, placeholder
from handrail.typed.field_words import NAMES, TERMS

Node: TypeAlias = dict[str, Any]

_TAG = "$"
_SECRET = "secret"  # noqa: S105  # a tag, not one
_MARK = '"$":"secret"'
_BASE64 = '"base64":"'

_STAY = TERMS | NAMES
_PARTS = ("next", "usage", "spent", "session_usage")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def seal_text(
    text: str, secrets: Mapping[str, str] | None, *, record: bool = False
) -> tuple[str, bool]:
    """The JSON text without secrets, and whether a token in it was cut irreversibly.

    ``record``: the text is one of handrail's own objects, whose ``TERMS`` and ``NAMES`` stay.
    """
    if len(text) < SHORTEST:
        return text, False
    finder = finder_of(secrets) if secrets else None
    if finder is not None and _BASE64 not in text:
        if not finder.value_or_token_in_json(text):
            return text, False
        if not finder.occurs_in_json(text):
            finder = None
    if finder is None and not may_contain_token(text):
        return text, False
    seal = _Seal(finder, secrets or {})
    tree = [_decode(text)]
    _walk(tree, seal, record=record)
    return (_encode(tree[0]).decode(), seal.cut) if seal.changed else (text, False)


def unseal_text(text: str, secrets: Mapping[str, str] | None) -> str:
    """The JSON text with its secrets restored. An unknown variable becomes ``${NAME}``, and
    ``SecretValues`` add it to ``missing``.
    """
    if _MARK not in text:
        return text
    values: Mapping[str, str] = {} if secrets is None else secrets
    tree = [_decode(text)]
    with_pairs: list[tuple[Any, Any]] = []
    for holder, key, reference in _references(tree):
        if "v" in reference:
            holder[key] = "".join(_unsealed_part(part, values) for part in reference["v"])
        elif "base64" in reference:
            holder[key] = _base64_of(reference["base64"], values)
        else:
            with_pairs.append((holder, key))
    for holder, key in reversed(with_pairs):  # inner ones first: outer ones hold them
        holder[key] = dict(holder[key]["pairs"])
    return _encode(tree[0]).decode()


def variables_in(text: str) -> set[str]:
    """The names of the variables whose values the JSON text refers to."""
    if _MARK not in text:
        return set()
    parts = [
        part
        for _, _, reference in _references([_decode(text)])
        for part in (*reference.get("v", ()), *reference.get("base64", ()))
    ]
    return {str(part["env"]) for part in parts if type(part) is not str}


class _Seal:
    """Seals the strings of one text, and remembers whether it changed or cut any. Mutable."""

    __slots__ = ("changed", "cut", "finder", "secrets")

    def __init__(self, finder: SecretFinder | None, secrets: Mapping[str, str]) -> None:
        self.finder = finder
        self.secrets = secrets
        self.changed = False
        self.cut = False

    def string(self, text: str) -> str | Node:
        """``text`` itself, ``text`` with its tokens cut, or a reference."""
        finder = self.finder
        if finder is None or not finder.may_occur_in(text):
            return self._without_tokens(text)
        parts = list(_parts(finder, text))
        if all(type(part) is str for part in parts):
            return self._without_tokens(text)
        self.changed = True
        shown = [part if type(part) is dict else self._without_tokens(str(part)) for part in parts]
        return {_TAG: _SECRET, "v": shown}

    def base64(self, text: str) -> str | Node:
        """``text`` itself, or a reference; the bytes are searched as Latin-1 text."""
        finder = finder_of({name: _latin(value) for name, value in self.secrets.items()})
        if finder is None:
            return text
        parts = list(_parts(finder, b64decode(text).decode("latin-1")))
        if all(type(part) is str for part in parts):
            return text
        self.changed = True
        encoded = [
            b64encode(part.encode("latin-1")).decode() if type(part) is str else part
            for part in parts
        ]
        return {_TAG: _SECRET, "base64": encoded}

    def _without_tokens(self, text: str) -> str:
        shown = without_tokens(text)
        if shown != text:
            self.changed = self.cut = True
        return shown


def _parts(finder: SecretFinder, text: str) -> Iterator[str | dict[str, str]]:
    """The text between secrets, and a reference for each secret, in order."""
    end = 0
    for match in finder.pattern_in(text).finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        name, part, spelling = finder.names[match[0]]
        reference = {"env": name, "of": part, "as": spelling}
        yield {key: text for key, text in reference.items() if text}
        end = match.end()
    if end < len(text):
        yield text[end:]


def _walk(tree: list[Any], seal: _Seal, *, record: bool) -> None:
    """Seal every string of a tree, in place and without recursion: outputs may be deep."""
    todo: list[Any] = [tree]
    own = _own_objects(tree[0]) if record else ()
    while todo:
        node = todo.pop()
        if type(node) is list:
            _seal_items(node, enumerate(cast("Iterable[Any]", node)), seal, todo)
        else:
            _seal_object(node, seal, todo, own=any(node is one for one in own))


def _own_objects(record: Node) -> list[Any]:
    """The objects of a record whose fields are handrail's: the record and its ``_PARTS``."""
    own = [record]
    for node in own:  # the list grows during the loop
        own += [node[part] for part in _PARTS if type(node.get(part)) is dict]
    return own


def _seal_object(node: Node, seal: _Seal, todo: list[Any], *, own: bool) -> None:
    tag: str | None = node.get(_TAG)
    if "base64" in node and tag in {"bytes", "bytearray"}:
        node["base64"] = seal.base64(node["base64"])
        return
    own = own or (tag is not None and tag.startswith("handrail:"))
    stays = _STAY if own else ()
    items = [(key, node[key]) for key in node if key != _TAG and key not in stays]
    _seal_items(node, items, seal, todo)
    if tag is None and not own:
        _seal_keys(node, seal)


def _seal_items(holder: Any, items: Iterable[Any], seal: _Seal, todo: list[Any]) -> None:
    for key, item in items:
        if type(item) is str:
            new = seal.string(item)
            if new is not item:
                holder[key] = new
        elif _is_container(item):
            todo.append(item)


def _seal_keys(node: Node, seal: _Seal) -> None:
    pairs = [(seal.string(key), item) for key, item in node.items()]
    if all(new is key for (new, _), key in zip(pairs, node, strict=True)):
        return
    node.clear()
    if all(type(new) is str for new, _ in pairs):
        node.update(cast("list[tuple[str, Any]]", pairs))
    else:
        node.update({_TAG: _SECRET, "pairs": pairs})


def _references(tree: list[Any]) -> Iterator[tuple[Any, Any, Node]]:
    """Container, key and object of each object with the tag ``secret``; outer ones first."""
    todo: list[Any] = [tree]
    while todo:
        holder = todo.pop()
        for key, item in _places(holder):
            if type(item) is dict and cast("Node", item).get(_TAG) == _SECRET:
                yield holder, key, cast("Node", item)
            if _is_container(item):
                todo.append(item)


def _is_container(item: Any) -> bool:
    return type(item) is dict or type(item) is list


def _places(holder: Any) -> list[tuple[Any, Any]]:
    if type(holder) is dict:
        return list(cast("Node", holder).items())
    return list(enumerate(cast("Iterable[Any]", holder)))


def _unsealed_part(part: Any, values: Mapping[str, str]) -> str:
    if type(part) is str:
        return part
    name = part["env"]
    value = values.get(name)
    if value is None:
        if type(values) is SecretValues:
            values.missing.add(name)
        return placeholder(name)
    if len(part) == 1:
        return value
    return _spelled(value).get((part.get("of", ""), part.get("as", "")), value)


@lru_cache(maxsize=64)
def _spelled(value: str) -> Mapping[tuple[str, str], str]:
    return {(part, spelling): text for text, part, spelling in spellings_of(value)}


def _base64_of(parts: list[Any], values: Mapping[str, str]) -> str:
    pieces = [
        b64decode(part) if type(part) is str else utf8(_unsealed_part(part, values))
        for part in parts
    ]
    return b64encode(b"".join(pieces)).decode()


def _latin(text: str) -> str:
    """The bytes of ``text``, each as the character of its number."""
    return utf8(text).decode("latin-1")
