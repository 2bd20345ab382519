"""A program on PATH that says what it was recorded to say, and notes how it was called."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCRIPT = """#!{python}
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
if "--version" in sys.argv:
    print({version!r})
    sys.exit(0)
files = {{}}
for word in sys.argv:
    path = word.lstrip("@")
    if os.path.isfile(path) and word != sys.argv[0]:
        files[word] = open(path, encoding="utf-8").read()
call = {{"argv": sys.argv[1:], "stdin": sys.stdin.read(), "cwd": os.getcwd(),
        "env": dict(os.environ), "files": files}}
with open(os.path.join(here, {name!r} + ".call.json"), "w", encoding="utf-8") as file:
    json.dump(call, file)
sys.stderr.write({stderr!r})
sys.stdout.buffer.write(open({stdout!r}, "rb").read())
sys.stdout.flush()
if "--usage-output-file" in sys.argv and {report!r}:
    with open(sys.argv[sys.argv.index("--usage-output-file") + 1], "w") as file:
        file.write({report!r})
sys.exit({code})
"""


@dataclass(frozen=True, slots=True)
class Recording:
    """A program that was put on PATH."""

    path: Path

    @property
    def call(self) -> dict[str, Any]:
        """How it was called last: argv, stdin, cwd, env, and the files that argv names."""
        noted = self.path.with_name(f"{self.path.name}.call.json")
        called: dict[str, Any] = json.loads(noted.read_text("utf-8"))
        return called

    @property
    def argv(self) -> list[str]:
        """Its arguments, without its name."""
        argv: list[str] = self.call["argv"]
        return argv


def install(
    folder: Path,
    name: str,
    stdout: bytes = b"",
    *,
    stderr: str = "",
    code: int = 0,
    version: str = "1.2.3",
    report: str = "",
) -> Recording:
    """Put a program of this name into a folder."""
    said = folder / f"{name}.stdout"
    said.write_bytes(stdout)
    path = folder / name
    path.write_text(
        _SCRIPT.format(
            python=sys.executable,
            name=name,
            stdout=str(said),
            stderr=stderr,
            code=code,
            version=version,
            report=report,
        ),
        "utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Recording(path)


def path_with(folder: Path) -> str:
    """A PATH on which the programs of this folder come first."""
    return f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
