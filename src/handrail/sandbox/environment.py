"""Which variables of this process a program sees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from handrail.model.sandbox import InheritEnv, Sandbox
from handrail.sandbox.programs import NOTHING, Needs
from handrail.secrets.values import Secrets

_EVERYWHERE = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "PWD",
    "HANDRAIL_DIR", "HANDRAIL_STEP", "HANDRAIL_OUTER_STEPS",
})  # fmt: skip
"""What a program is given whichever names are listed: without these hardly one works."""
_BEGINNINGS = ("LC_", "XDG_")
_SECRETS = Secrets()


def inherited(
    inherit_env: Any, sandbox: Sandbox | None, without: InheritEnv, needs: Needs = NOTHING
) -> dict[str, str]:
    """The variables of this process that a program inherits: as its step says, else its sandbox.

    In a sandbox that does not say it, those that are no secrets; ``without`` one, as it says.
    ``"safe"`` leaves out those that look like secrets, by name or by value; a list leaves out all
    but these and what no program can do without. What the program itself needs is never left out.
    """
    rule: Any = inherit_env
    if rule is None:
        rule = without if sandbox is None else "safe" if sandbox.env is None else sandbox.env
    if rule == "all":
        return dict(os.environ)
    names = None if rule == "safe" else frozenset(rule)
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(needs.variables) or _passes(name, value, names)
    }


def _passes(name: str, value: str, names: frozenset[str] | None) -> bool:
    if names is None:
        return not _SECRETS.picks(name, value)
    return name in names or name in _EVERYWHERE or name.startswith(_BEGINNINGS)


def proxied(env: Mapping[str, str], address: str) -> dict[str, str]:
    """The environment of a program that reaches the network through a proxy alone."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    both = (*names, *(name.lower() for name in names))
    kept = {name: value for name, value in env.items() if name not in both}
    ways = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**kept, **dict.fromkeys(ways, address), "NODE_USE_ENV_PROXY": "1"}
