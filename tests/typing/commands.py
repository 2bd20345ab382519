"""`command`: `data` has the type that `parse` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from handrail import CommandResult, Step, Steps, step


@dataclass(frozen=True)
class Version:
    major: int


run = step("run")

assert_type(run.command("ls -l"), Step[CommandResult[None]])
assert_type(run.command(["ls", "-l"], check=False), Step[CommandResult[None]])
assert_type(
    run.command(("git", "log"), cwd=Path("repo"), env={"LC_ALL": "C"}, stdin=b""),
    Step[CommandResult[None]],
)
assert_type(run.command(["version"], parse=Version), Step[CommandResult[Version]])
assert_type(run.command(["version"], parse=list[Version]), Step[CommandResult[list[Version]]])
assert_type(run.command(["version"], parse=dict[str, int]), Step[CommandResult[dict[str, int]]])
# A checker takes a union or a Literal for no type: the value is Any.
either = run.command(["version"], parse=Literal["old", "new"])


def used() -> Steps[int]:
    done = yield from run.command(["version"], parse=Version)
    assert_type(done.exit_code, int)
    assert_type(done.stdout, str)
    assert_type(done.data, Version)
    vague = yield from either
    assert_type(vague.data, Any)
    return done.exit_code


run.command(7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
run.command([1, 2])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
run.command("ls", "-l")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
run.command("ls", env={"A": 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
run.command("ls", check="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
run.command("ls", shell=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
