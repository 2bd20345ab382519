"""Agents that speak ACP and are known by a name: what starts each, and what it is known to lack.

Source: the programs' own pages, the registry of ACP, and the start of real ones: auggie, cline,
droid, qwen. What a program has not, beyond this, it says at its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from handrail.agents.acp.backend import ACP, AcpBackend
from handrail.agents.transport.programs import any_of
from handrail.model.dataclass import dataclass
from handrail.ports.agent import Capabilities


@dataclass(frozen=True, slots=True)
class NamedAgent:
    """How an agent is started, installed and logged in.

    ``keys`` are variables that hold a login, ``env`` is what the program needs in its environment;
    ``lacks`` are options that it does not have.
    """

    argv: Sequence[str]
    install: str
    login: str
    keys: Sequence[str] = ()
    model_flag: str | None = None
    lacks: frozenset[str] = field(default_factory=frozenset[str])
    forks: bool = True
    env: Mapping[str, str] = field(default_factory=dict[str, str])


NAMED: Mapping[str, NamedAgent] = {
    "auggie": NamedAgent(
        ("auggie", "--acp"),
        "npm install -g @augmentcode/auggie",
        "auggie login (or set AUGMENT_SESSION_AUTH)",
        keys=("AUGMENT_SESSION_AUTH",),
        env={"AUGMENT_DISABLE_AUTO_UPDATE": "1"},
    ),
    "cline": NamedAgent(("cline", "--acp"), "npm install -g cline", "cline auth"),
    "cursor": NamedAgent(
        ("cursor-agent", "acp"),
        "curl https://cursor.com/install -fsS | bash",
        "cursor-agent login (or set CURSOR_API_KEY)",
        keys=("CURSOR_API_KEY",),
    ),
    "droid": NamedAgent(
        ("droid", "exec", "--output-format", "acp"),
        "npm install -g droid",
        "droid, then /login (or set FACTORY_API_KEY)",
        keys=("FACTORY_API_KEY",),
        env={"DROID_DISABLE_AUTO_UPDATE": "true", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false"},
    ),
    "goose": NamedAgent(
        ("goose", "acp"),
        "see https://block.github.io/goose",
        "goose configure",
    ),
    "junie": NamedAgent(
        ("junie", "--acp=true"),
        "curl -fsSL https://junie.jetbrains.com/install.sh | bash",
        "junie, and sign in",
    ),
    "kimi": NamedAgent(("kimi", "acp"), "uv tool install kimi-cli", "kimi login"),
    "kiro": NamedAgent(("kiro-cli", "acp"), "see https://kiro.dev/docs/cli", "kiro-cli login"),
    "qwen": NamedAgent(
        ("qwen", "--acp"),
        "npm install -g @qwen-code/qwen-code",
        "qwen, then /auth (or set OPENAI_API_KEY)",
        keys=("OPENAI_API_KEY",),
        model_flag="--model",
        lacks=frozenset({"effort", "add_dirs"}),
        forks=False,
    ),
    "vibe": NamedAgent(
        ("vibe-acp",),
        "uv tool install mistral-vibe",
        "vibe --setup (or set MISTRAL_API_KEY)",
        keys=("MISTRAL_API_KEY",),
    ),
}
"""By the name of the backend."""


def make_named(name: str) -> AcpBackend:
    """The backend of one of these names."""
    row = NAMED[name]
    return AcpBackend(
        row.argv,
        name=name,
        model_flag=row.model_flag,
        can_do=Capabilities(
            options=ACP.options - row.lacks,
            permissions=ACP.permissions,
            sessions=True,
            fork=row.forks,
            usage=True,
            cost=True,
        ),
        env=row.env,
        install=row.install,
        login=row.login,
        logged_in=lambda env: True if any_of(env, *row.keys) else None,
    )
