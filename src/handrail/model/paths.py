"""Names, keys and paths: the grammar of a step's identity in a run.

A path is names and keys joined by ``/``. It is the key of the journal, so the grammar is fixed:

- a *name* is typed by the author of a workflow: 1 to 120 printable characters, no ``/``, no blank
  at an edge, not ``.`` or ``..``, not ending in ``~`` and digits (that suffix marks later
  attempts);
- a *key* comes from data: ``str(key)`` with ``/``, ``%``, control characters and the dots of ``.``
  and ``..`` percent-encoded, so that any value has a key and different texts have different keys;
- attempt n >= 2 of a composite step runs its children under ``name~n/``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from handrail.errors import DefinitionError
from handrail.shortening import shortened

MAX_NAME = 120
_ATTEMPT_SUFFIX = re.compile(r"~\d+\Z")
_ATTEMPT_OF_IT = re.compile(r"~\d+/")
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]{4,}")
_UNSAFE_IN_KEY = re.compile(r"[/%\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSAFE_ON_DISK = re.compile(r"[^A-Za-z0-9._-]")
_ENCODED = re.compile(r"(?:%[0-9A-F]{2})+")
_MAX_PART_BYTES = 80
_BUDGET = "budget-"
_LIMITS = "limits."


def is_run_id(run_id: object) -> bool:
    """True for what a new run may be called: 1 to 120 printable characters, no blank at an end."""
    return (
        isinstance(run_id, str)
        and 0 < len(run_id) <= MAX_NAME
        and run_id.isprintable()
        and run_id == run_id.strip()
    )


def check_name(name: object, what: str = "step") -> str:
    """The name itself, if it is a valid name.

    Raises:
        DefinitionError: it is not a string of the grammar above; the text says which rule it broke.
    """
    if (
        type(name) is str
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and "/" not in name
        and name[0] != " "
        and name[-1] != " "
        and name[0] != "."
        and "~" not in name
    ):
        return name
    return _check_slowly(name, what)


def _check_slowly(name: object, what: str) -> str:
    problem = _problem_with(name)
    if problem is None:
        return str(name)
    shown = shortened(repr(name), 2 * MAX_NAME)
    raise DefinitionError(f"{shown} is no name for a {what}: {problem}")


def _problem_with(name: object) -> str | None:
    if not isinstance(name, str):
        return f"it must be a str, got {type(name).__name__}"
    if not name.strip():
        return "it is blank"
    if len(name) > MAX_NAME:
        return f"it has {len(name)} characters, at most {MAX_NAME} are allowed"
    if "/" in name:
        return "'/' separates the parts of a path; use '-' or '.' inside a name"
    if name != name.strip():
        return "it begins or ends with a blank"
    if not name.isprintable():
        return "it has characters that cannot be printed"
    if name in {".", ".."}:
        return "'.' and '..' mean folders"
    if _ATTEMPT_SUFFIX.search(name):
        return "'~' and digits at the end mark later attempts"
    return None


def encode_key(key: object) -> str:
    """A member's key as a part of a path; distinct strings have distinct encodings.

    Raises:
        ValueError: the key's text is empty, or has the object's address and so changes each time.
    """
    text = str(key)
    if type(key) is not str and type(key) is not int and _ADDRESS.search(text):
        raise ValueError(
            f"a key must have the same text in each run, or its steps are not found again: got "
            f"{text}. Give key= a plain function that returns a text or a number."
        )
    if not text:
        raise ValueError("a key must not be empty: it becomes a part of the member's path")
    if text in {".", ".."}:
        return text.replace(".", "%2E")
    if text.isalnum():
        return text
    return _UNSAFE_IN_KEY.sub(_percent, text)


def decode_key(part: str) -> str:
    """A part of a path as the key or name that it encodes, for people."""
    return _ENCODED.sub(_unpercent, part) if "%" in part else part


def _unpercent(match: re.Match[str]) -> str:
    return bytes.fromhex(match.group().replace("%", "")).decode("utf-8", "replace")


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "surrogatepass"))


def join(parent: str, name: str) -> str:
    """The path of ``name`` under ``parent``; the root's path is empty."""
    return f"{parent}/{name}" if parent else name


def attempt_base(path: str, attempt: int) -> str:
    """The parent path of the children of an attempt: ``path`` for the first, then ``path~n``."""
    return path if attempt < 2 else f"{path}~{attempt}"


def parent_of(path: str, known: Container[str]) -> str:
    """The path of the step, group or member that contains a path; empty at the top level.

    ``known`` has all paths of the run, because a member's key may end in ``~`` and digits, too.
    """
    above = path.rpartition("/")[0]
    if above in known:
        return above
    head, tilde, digits = above.rpartition("~")
    return head if tilde and digits.isascii() and digits.isdigit() else above


def ancestors_of(path: str, known: Container[str]) -> Iterator[str]:
    """Every path that contains this one, the nearest first; ``known`` as in ``parent_of``."""
    above = parent_of(path, known)
    while above:
        yield above
        above = parent_of(above, known)


def is_within(path: str, above: str) -> bool:
    """True if a path is ``above`` or below it, in any attempt.

    The run, whose path is empty, contains every path.
    """
    if not above or path == above:
        return True
    rest = path.removeprefix(above)
    return rest != path and (rest[0] == "/" or _ATTEMPT_OF_IT.match(rest) is not None)


def member_of(path: str, group: str) -> str:
    """The name of the member of a group, in any attempt, that a path is in; "" if it is in none."""
    return f"{path.removeprefix(group)}/".split("/")[1] if is_within(path, group) else ""


def on_disk(part: str) -> str:
    """A folder name for one part of a path: percent-encoded, cut at 80 bytes plus a hash."""
    encoded = _UNSAFE_ON_DISK.sub(_percent, part)
    if encoded in {".", ".."}:
        encoded = encoded.replace(".", "%2E")
    if len(encoded) <= _MAX_PART_BYTES:
        return encoded
    import hashlib

    digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{encoded[:_MAX_PART_BYTES]}-{digest}"


def budget_gate(step: str, number: int) -> str:
    """The path of the ``number``-th gate that asks whether a step's agent may be launched."""
    return f"{step}/{_BUDGET}{number}"


def limit_gate(name: str, number: int) -> str:
    """The path of the gate that asks whether to raise a limit; no step can have such a name."""
    return f"{_LIMITS}{name}~{number}"


def is_limit_gate(path: str) -> bool:
    """True for a path that ``limit_gate`` returns."""
    return path.startswith(_LIMITS) and "~" in path and "/" not in path


def is_budget_gate(step: str, path: str) -> bool:
    """True for a path that ``budget_gate`` returns for this step."""
    return path.startswith(f"{step}/{_BUDGET}")
