"""The start of a program that may just be updating itself.

Agents' programs replace their own files while others start them. For a moment the file is then
open for writing ("text file busy"), or not there, not yet executable, or empty. What is missing for
good is refused after half a second; a file that is being written is waited for longer.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Mapping, Sequence

import anyio

from handrail.system.spawn import checked

_PATIENCE_S = {
    errno.ETXTBSY: 2.0,
    errno.ENOENT: 0.5,
    errno.EACCES: 0.5,
    errno.ENOEXEC: 0.5,
}
_LOOK_S = 0.05


async def spawn_patiently(
    argv: Sequence[str] | str,
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    has_stdin: bool,
) -> subprocess.Popen[bytes]:
    """A running child as ``spawn`` gives it, also of a program that is being replaced right now.

    Raises:
        CommandNotFound, CommandNotStarted, DefinitionError: see ``spawn``.
    """
    command = checked(argv, cwd=cwd, env=env, has_stdin=has_stdin)
    asked_s = time.monotonic()
    while True:
        try:
            return command.start()
        except OSError as error:
            if time.monotonic() - asked_s >= _PATIENCE_S.get(error.errno or 0, 0.0):
                raise command.refusal(error) from None
        await anyio.sleep(_LOOK_S)
