"""``handrail skill``: what an agent needs to know of handrail, put where agents look for it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.exits import Exit, Refused

DEFAULT = Path(".claude", "skills", "handrail")
PACKAGE = Path(__file__).parents[1]
NAME = "SKILL.md"
_MARK = re.compile(r"\n<!-- written by `handrail skill`, (\w+) -->\n\Z")


def skill(
    folder: Annotated[Path, Parameter(name="DIR", allow_leading_hyphen=True)] = DEFAULT,
    /,
    *,
    force: bool = False,
    docs: bool = False,
) -> int:
    """Write a skill that teaches an agent to write, check, test and run workflows.

    Parameters
    ----------
    folder
        Where it goes: by default .claude/skills/handrail, where Claude Code looks for it.
    force
        Overwrite a skill that somebody has edited.
    docs
        Only print the folder of the documentation, as Markdown files.
    """
    if docs:
        print(docs_folder())
        return Exit.SUCCEEDED
    file, text = folder / NAME, marked((PACKAGE / "skill" / NAME).read_text("utf-8"))
    if file.exists() and not force and not is_as_written(file.read_text("utf-8", "replace")):
        why = "was edited, or written by somebody else, and is not overwritten"
        raise Refused(str(file), why, "--force overwrites it.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    except OSError as error:
        raise Refused(str(file), f"cannot be written: {error.strerror}") from None
    print(f"wrote {file}")
    return Exit.SUCCEEDED


def docs_folder() -> Path:
    """The folder of the documentation: in the package, or beside it in a checkout."""
    within = PACKAGE / "docs"
    return within if within.is_dir() else PACKAGE.parents[1] / "docs"


def marked(text: str) -> str:
    """The text of a skill, with a last line by which an edit shows."""
    return f"{text}\n<!-- written by `handrail skill`, {_digest(text)} -->\n"


def is_as_written(text: str) -> bool:
    """True if ``handrail skill`` wrote this text, of this version or another."""
    mark = _MARK.search(text)
    return mark is not None and mark[1] == _digest(text[: mark.start()])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
