"""A home, a repository and a neighbourhood with canaries in them; and who works there."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentOptions,
    CommandBackend,
    Executor,
    Sandbox,
    Stage,
    Steps,
    WorkflowResult,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.sandbox.bubblewrap import why_unavailable
from handrail.sinks.memory import MemorySink
from handrail.testing import fake_cli

CANARY = "canary-5f1e9c37"
"""What must never leave the places where it is planted."""
PLANTED = (".ssh/id_ed25519", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".npmrc")
RUNNERS = ("claude", "codex", "copilot", "gemini", "opencode", "program", "command", "stage")
AGENTS = RUNNERS[:6]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the sandbox of this machine, where it has none."""
    refused = why_unavailable()
    if refused is None:
        return
    for item in items:
        if "world" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason=str(refused)))


@dataclass
class World:
    """Where a launch works, and all around it. Mutable."""

    root: Path
    scripts_at: Path | None = None

    @property
    def scripts(self) -> Path:
        """Where the scripts lie that are run, and the programs."""
        return self.scripts_at or self.root / "scripts"

    @property
    def home(self) -> Path:
        """The home: with keys, and a shell's settings."""
        return self.root / "home"

    @property
    def repo(self) -> Path:
        """A repository with code, a test of it, a journal and another step's worktree."""
        return self.root / "repo"

    @property
    def outside(self) -> Path:
        """A folder beside the repository."""
        return self.root / "outside"

    @property
    def other_tree(self) -> Path:
        """The worktree of another step."""
        return self.repo / ".handrail" / "worktrees" / "other-run" / "step"

    def snapshot(self) -> dict[str, str]:
        """What no launch may change, by path: all but the work, and what agents keep of theirs."""
        left_out = (self.root / "scripts", self.home / ".local")
        own = [self.home / name for name in (".claude", ".codex", ".copilot", ".gemini")]
        kept = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        places = [self.repo / ".git" / name for name in ("config", "hooks", "HEAD", "info")]
        places += [self.repo / ".git/refs/heads/theirs", self.other_tree, self.repo / "runs.db"]
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in kept
            if any(path.is_relative_to(place) for place in places)
            or not any(path.is_relative_to(place) for place in (*left_out, *own, self.repo))
        } | {"settings": _text(self.home / ".claude/settings.json")}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world that is not in /tmp, which a launch has for itself."""
    made = World(Path(tempfile.mkdtemp(prefix="handrail-world-", dir="/var/tmp")))
    for name in PLANTED:
        file = made.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{CANARY} {name}\n")
    (made.home / ".claude").mkdir()
    (made.home / ".claude" / "settings.json").write_text("{}")
    (made.home / ".bashrc").write_text("# mine\n")
    made.outside.mkdir()
    (made.outside / "file.txt").write_text("as it was\n")
    (made.repo / "src").mkdir(parents=True)
    (made.repo / "src" / "pages.py").write_text("def pages(n):\n    return n // 3\n")
    (made.repo / "test_pages.py").write_text(
        "import unittest\nfrom src.pages import pages\n\n\nclass T(unittest.TestCase):\n"
        "    def test_it(self):\n        self.assertEqual(pages(9), 3)\n"
    )
    git(made.repo, "init", "--quiet", "--initial-branch=main", "--template=")
    for name, value in (("user.name", "t"), ("user.email", "t@t"), ("commit.gpgSign", "false")):
        git(made.repo, "config", name, value)
    (made.repo / ".git" / "hooks").mkdir()
    (made.repo / ".git" / "info").mkdir(exist_ok=True)
    (made.repo / ".git" / "info" / "exclude").write_text(".handrail/\n__pycache__/\nruns.db*\n")
    git(made.repo, "add", "--all")
    git(made.repo, "commit", "--quiet", "--message", "Count pages")
    made.other_tree.parent.mkdir(parents=True)
    git(made.repo, "worktree", "add", "--quiet", "-b", "theirs", str(made.other_tree))
    (made.other_tree / "secret.txt").write_text(f"{CANARY} of another step\n")
    (made.repo / ".handrail" / "journal.txt").write_text(f"{CANARY} of the journal\n")
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("MY_TOKEN", f"{CANARY}-in-the-environment")
    monkeypatch.setenv("PLAIN", "plain")
    for name in ("XDG_STATE_HOME", "HANDRAIL_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(made.repo)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


@dataclass
class Outcome:
    """What came of a script: the run, what it printed, and what its sandbox refused."""

    result: WorkflowResult[Any]
    printed: str
    denied: list[ev.SandboxDenied] = field(default_factory=list)

    @property
    def acts(self) -> dict[str, str]:
        """What became of each act of the script: ``done`` or ``refused``."""
        lines = (line.partition("=") for line in self.printed.splitlines())
        return {name: end for name, _, end in lines if end in ("done", "refused")}

    def told(self, what: str) -> bool:
        """True if a refusal of this was an event."""
        return any(what in event.what for event in self.denied)


ACTS = """
try() { name=$1; act=$(mktemp); cat >"$act"; if sh "$act" >"$act.said" 2>&1; then echo "$name=done"
else echo "$name=refused"; fi; cat "$act.said"; rm -f "$act" "$act.said"; }
"""


def script_of(acts: Mapping[str, str], **places: object) -> str:
    """A script that tries each act, and says what became of it."""
    lines: list[str] = []
    for name, act in acts.items():
        for word, value in places.items():
            act = act.replace(f"{{{word}}}", str(value))  # noqa: PLW2901
        lines.append(f"try \"{name}\" <<'END'\n{act}\nEND")
    return "\n".join(lines) + "\n"


Run = Callable[..., Outcome]


def run_script(
    world: World,
    runner: str,
    script: str,
    sandbox: Sandbox | bool | None = True,
    *,
    own_tree: bool = True,
    writes: list[str] | None = None,
    env: Mapping[str, str] | None = None,
    inherit_env: Any = None,
    journal: Any = None,
    check: Callable[[WorkflowResult[Any]], None] | None = None,
) -> Outcome:
    """Have somebody run a script: an agent's program, a command, a stage of a check."""
    folder = world.scripts
    folder.mkdir(exist_ok=True)
    file = folder / "act.sh"
    file.write_text(ACTS + script)
    sink = MemorySink()
    backend: Any = None
    if runner == "program":
        backend = CommandBackend(["sh", "-c", f"cat >/dev/null; sh {file} >&2; echo done."])
    elif runner in AGENTS:
        fake = fake_cli(runner, ["done."], path=folder)
        real = fake.executable.with_name(f"real-{runner}")
        fake.executable.rename(real)
        fake.executable.write_text(f'#!/bin/sh\nsh {file} >&2 </dev/null\nexec {real} "$@"\n')
        fake.executable.chmod(0o755)
        backend = _backend(runner, str(fake.executable))
    permission: Any = "full" if runner in AGENTS[:5] else None
    options = AgentOptions(sandbox=sandbox, env=env, inherit_env=inherit_env, permission=permission)
    agent = Agent("worker", "Work.", backend=backend, options=options)
    bounds: Any = {"sandbox": sandbox, "inherit_env": inherit_env}
    command = ["sh", str(file)]

    def work() -> Steps[Any]:
        if runner == "command":
            return (yield from step("act").command(command, check=False, env=env, **bounds))
        if runner == "stage":
            stage = Stage("act", ["sh", "-c", f"sh {file}; true"], **bounds)
            return (yield from step("check").validate([stage], retry=0))
        tree = own_tree and writes is None
        return (yield from step("act").agent(agent, worktree=tree, writes=writes))

    @workflow
    def flow() -> Steps[Any]:
        if own_tree and runner in ("command", "stage"):
            return (yield from step("tree").worktree(work))
        return (yield from work())

    result = Executor(sinks=[sink], journal=journal).run_sync(flow)
    printed = "".join(event.text for event in sink.of(ev.StepOutput))
    if check is None:
        assert result.success, f"{result.error}\n{printed}"
    return Outcome(result, printed, sink.of(ev.SandboxDenied))


def _backend(runner: str, executable: str) -> Any:
    from handrail.agents.acp.backend import gemini, opencode
    from handrail.agents.claude.backend import ClaudeBackend
    from handrail.agents.codex.backend import CodexBackend
    from handrail.agents.copilot.backend import CopilotBackend

    made: dict[str, Any] = {
        "claude": ClaudeBackend,
        "codex": CodexBackend,
        "copilot": CopilotBackend,
        "gemini": gemini,
        "opencode": opencode,
    }
    return made[runner](executable)


@pytest.fixture
def listening(world: World) -> Iterator[Path]:
    """A UNIX socket of the machine, to which anybody may connect."""
    path = world.outside / "service.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        server.listen()
        yield path
