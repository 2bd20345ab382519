"""Scripted acts as reels: what any program prints and does, launch by launch.

For a program that has no protocol: there are no words but its answer, a complaint on stderr and an
exit code. The acts and the order of things in them are those of ``fake_cli``.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from handrail.testing.fake_programs import Dies, Fails, Garbage, Hangs, Says
from tests.agents.parity import player

Act: TypeAlias = Says | Fails | Dies | Garbage | Hangs
Step: TypeAlias = tuple[str, Any]


def text_of(says: Says) -> str:
    """The last message: of a program that cannot hand over a value, it is the value in JSON."""
    return says.text if says.structured is None else json.dumps(says.structured)


def install(folder: Path, name: str, acts: Sequence[Act]) -> Path:
    """A program of this name in the folder, which does one act a launch."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reels.json").write_text(json.dumps([list(_reel(act)) for act in acts]), "utf-8")
    program = folder / name
    command = shlex.join([sys.executable, "-S", "-E", "-I", str(player.__file__), str(folder)])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
    program.chmod(0o755)
    return program


def _reel(act: Act) -> Iterator[Step]:
    if isinstance(act, Garbage):
        yield ("prints", act.data.decode("latin-1"))
        yield ("exits", act.exit_code)
        return
    if act.leaves_child:
        yield ("leaves a child", None)
    if act.stderr:
        yield ("complains", act.stderr)
    for verb, what in _whole(act):
        if verb != "at":
            yield (verb, what)
        elif isinstance(act, Hangs) and act.after == what:
            yield ("waits", act.seconds)
        elif isinstance(act, Dies) and act.after == what:
            yield ("exits", act.exit_code) if act.signal is None else ("dies of", act.signal)
            return


def _whole(act: Says | Fails | Dies | Hangs) -> Iterator[Step]:
    """All of the act, with the moments (``at``) at which it may stop."""
    says = act if isinstance(act, Says) else act.says
    yield ("complains", "It begins.\n")  # a sign of life, which is no part of the answer
    yield ("at", "start")
    if says.tools:
        yield ("at", "tool")
    if not isinstance(act, Fails):
        yield ("prints", text_of(says))
        yield ("at", "result")
        return
    yield ("prints", says.text)
    yield ("complains", f"It did not work: {act.kind}\n")
    yield ("exits", 1)
