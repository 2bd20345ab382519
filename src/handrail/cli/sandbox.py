"""``handrail sandbox``: a command within the boundary that a step has, to try it by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.exits import Refused
from handrail.errors import DefinitionError
from handrail.model.sandbox import Network, Sandbox, SandboxUnavailable
from handrail.sandbox.bubblewrap import Confinement
from handrail.sandbox.environment import inherited
from handrail.sandbox.mounts import Scene

_KILLED = 128


def sandbox(
    command: Annotated[list[str], Parameter(name="COMMAND", allow_leading_hyphen=True)],
    /,
    *,
    write: Annotated[list[str] | None, Parameter(name="--write")] = None,
    hide: Annotated[list[str] | None, Parameter(name="--hide")] = None,
    network: Annotated[list[str] | None, Parameter(name="--network")] = None,
) -> int:
    """Run a command in a sandbox: handrail sandbox --network none -- pytest.

    The exit code is that of the command. It may change the working tree it is in, and a /tmp of
    its own; it sees neither credentials nor variables that look like secrets.

    Parameters
    ----------
    command
        The command and its arguments, after `--`.
    write
        A path that it may change, too; can be repeated.
    hide
        A path that it must not see, too; can be repeated.
    network
        `full` (the default), `none`, or a host that it may reach; can be repeated.
    """
    if not command:
        raise Refused("handrail sandbox", "needs a command", "Write handrail sandbox -- COMMAND.")
    try:
        return _run(command, Sandbox(write or (), hide or (), _network(network or [])))
    except SandboxUnavailable as error:
        why = f"cannot be enforced: {error.why}"
        raise Refused("handrail sandbox", why, error.advice) from None
    except DefinitionError as error:
        raise Refused("handrail sandbox", str(error)) from None
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return _KILLED - 1


def _network(words: list[str]) -> Network:
    plain = [word for word in words if word in ("full", "none")]
    if plain and len(words) > 1:
        raise DefinitionError(f"--network {plain[0]} goes with no other --network")
    return "none" if plain == ["none"] else "full" if plain or not words else words


def _run(command: list[str], wanted: Sandbox) -> int:
    def tell(what: str, _: str) -> None:
        print(f"handrail: refused {what}", file=sys.stderr)

    boundary = Confinement(wanted, Scene(Path.cwd()), tell)
    try:
        with boundary.entered(command, inherited("safe", wanted, "safe")) as launchable:
            child = subprocess.Popen(  # noqa: S603  # the user's
                launchable.words, env=launchable.env, pass_fds=launchable.descriptors
            )
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                continue  # it reaches the command from the terminal itself
            return _KILLED - code if code < 0 else code
    finally:
        boundary.end()
