"""What went wrong with sandboxes before, and does not here."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    CommandNotFound,
    Executor,
    Sandbox,
    SandboxUnavailable,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.sandbox import bubblewrap
from handrail.sandbox.bubblewrap import Confinement, why_unavailable
from handrail.sandbox.mounts import Scene
from handrail.sinks.memory import MemorySink
from handrail.system.live import Exited, open_live
from handrail.system.run import ProcessResult, run_process
from handrail.workspace.git import repository_of
from handrail.workspace.places import places_of
from handrail.workspace.worktree import Site
from tests.leftovers import lasting_carriers_of
from tests.sandbox.conftest import CANARY, World, git, run_script, script_of


@pytest.fixture
def anyio_backend() -> str:
    """One loop: what is tested are processes."""
    return "asyncio"


async def within(
    folder: Path, argv: Any, sandbox: Sandbox | None = None, **scene: Any
) -> tuple[ProcessResult, list[tuple[str, str]]]:
    """How a command ends in a sandbox, and what was refused to it."""
    told: list[tuple[str, str]] = []
    boundary = Confinement(
        sandbox or Sandbox(), Scene(folder, **scene), lambda *denial: told.append(denial)
    )
    mark = f"mishap-{os.urandom(4).hex()}"
    return await run_process(argv, marker=mark, cwd=folder, boundary=boundary), told


def test_1_nothing_that_git_executes_is_planted(world: World) -> None:
    """A `.git` that leads into the tree, with a monitor of files there, starts nothing of it."""
    script = script_of({
        "git": "mkdir -p src/g; echo '[core]\nfsmonitor = touch {out}/evil' > src/g/config; "
        'echo "gitdir: $PWD/src/g" > .git',
        "main": "echo '[core]\nfsmonitor = touch {out}/evil' >> {repo}/.git/config",
        "new": "rm -rf .git; git init --quiet .; git config core.fsmonitor 'touch {out}/evil'",
    }, out=world.outside, repo=world.repo)  # fmt: skip
    outcome = run_script(world, "command", script)
    assert set(outcome.acts.values()) == {"refused"}
    git(world.repo, "status")
    assert not (world.outside / "evil").exists()


async def test_2_capabilities_are_dropped(world: World) -> None:
    """What covers a key cannot be taken off, as root neither."""
    done, _ = await within(
        world.repo, "umount ~/.ssh; cat ~/.ssh/id_ed25519; grep Cap /proc/1/status"
    )
    assert CANARY not in done.stdout + done.stderr
    kept = {
        line.split()[1] for line in done.stdout.splitlines() if line.startswith(("CapE", "CapP"))
    }
    assert kept <= {"0000000000000000"}


async def test_3_a_program_outlives_the_threads_of_its_host(world: World) -> None:
    """It is started by the loop's thread, so it goes on when another thread ends."""
    boundary = Confinement(Sandbox(), Scene(world.repo), print)
    mark = f"mishap-{os.urandom(4).hex()}"
    words = ["sh", "-c", "echo begun; read line; echo $line"]
    async with open_live(words, marker=mark, cwd=world.repo, boundary=boundary) as live:
        first = await live.next(10)
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        await anyio.to_thread.run_sync(lambda: None)
        live.send(b"still here\n")
        said = await live.next(10)
        last = await live.next(10)
    assert [getattr(line, "data", line) for line in (first, said)] == [b"begun", b"still here"]
    assert last == Exited(0)


async def test_4_what_is_made_later_is_hidden_too(world: World) -> None:
    """A worktree that another step gets meanwhile is not seen: its parent folder is covered."""
    boundary = Confinement(Sandbox(), Scene(world.repo), print)
    mark = f"mishap-{os.urandom(4).hex()}"
    later = world.repo / ".handrail" / "worktrees" / "later"
    words = ["sh", "-c", f"echo begun; read line; cat {later}/key; echo $?"]
    async with open_live(words, marker=mark, cwd=world.repo, boundary=boundary) as live:
        await live.next(10)
        later.mkdir(parents=True)
        (later / "key").write_text(CANARY)
        live.send(b"\n")
        lines = [await live.next(10), await live.next(10)]
    assert CANARY.encode() not in b"".join(getattr(line, "data", b"") for line in lines)


def test_5_an_agents_own_state_has_no_hooks_to_plant(world: World) -> None:
    """Of claude's folder its sessions can be written; its settings, hooks and login cannot."""
    acts = {
        name: f"echo x > ~/.claude/{name}"
        for name in ("settings.json", "settings.local.json", "CLAUDE.md", ".credentials.json")
    }
    acts["sessions"] = "echo x > ~/.claude/projects/session.jsonl"
    acts["other agents"] = "ls ~/.codex"
    (world.home / ".codex").mkdir()
    outcome = run_script(world, "claude", script_of(acts))
    assert outcome.acts == dict.fromkeys(acts, "refused") | {"sessions": "done"}
    assert (world.home / ".claude/projects/session.jsonl").exists()


async def test_6_the_parents_environment_is_not_seen(world: World) -> None:
    """In `/proc` there are the launch's own processes, and no others."""
    done, _ = await within(world.repo, f"cat /proc/{os.getpid()}/environ; ls -d /proc/[0-9]*")
    assert CANARY not in done.stdout
    assert len(done.stdout.split()) < 8


def test_7_the_programs_are_not_asked_to_scrub_their_environment(world: World) -> None:
    """The variable that breaks claude inside of a sandbox is not set."""
    outcome = run_script(world, "claude", "env | grep SCRUB || echo none")
    assert outcome.printed == "none\n"


def test_8_the_agents_own_sandboxes_are_off(world: World) -> None:
    """A sandbox cannot be made in another: claude and codex are told to make none."""
    from tests.sandbox.conftest import RUNNERS

    assert RUNNERS[:2] == ("claude", "codex")
    run_script(world, "claude", "true")
    calls = sorted((world.root / "scripts" / "claude" / "calls").glob("*.json"))
    assert '{\\"sandbox\\":{\\"enabled\\":false}}' in calls[0].read_text()
    run_script(world, "codex", "true")
    calls = sorted((world.root / "scripts" / "codex" / "calls").glob("*.json"))
    assert "danger-full-access" in calls[0].read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_9_signals_are_the_programs_own(world: World, number: signal.Signals) -> None:
    """A signal to the group reaches its handler, whose exit code is the launch's."""
    code = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('handled', flush=True), sys.exit(7)))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    boundary = Confinement(Sandbox(), Scene(world.repo), print)
    mark = f"mishap-{os.urandom(4).hex()}"
    words = [sys.executable, "-c", code]
    async with open_live(words, marker=mark, cwd=world.repo, boundary=boundary) as live:
        assert getattr(await live.next(20), "data", None) == b"ready"
        os.killpg(live.pid, number)
        assert getattr(await live.next(20), "data", None) == b"handled"
        assert await live.next(20) == Exited(7)


async def test_9_a_crash_is_told_as_a_shell_does(world: World) -> None:
    """A program that dies of a signal gives 128 and its number."""
    done, _ = await within(world.repo, ["sh", "-c", "kill -SEGV $$"])
    assert done.exit_code == 128 + signal.SIGSEGV


async def test_10_a_refusal_says_how_it_is_known(world: World) -> None:
    """The proxy's are exact; those of files are read from the output, each told once."""
    hosts = Sandbox(network=("listed.test",))
    script = "for i in 1 2; do curl -sS http://evil.test/; echo x > /etc/x; done; exit 3"
    done, told = await within(world.repo, script, hosts)
    assert done.exit_code == 3
    assert ("evil.test:80", "proxy") in told
    assert ("/etc/x: Read-only file system", "output") in told
    assert len(told) == len(set(told))


@pytest.mark.parametrize("network", ["none", ("listed.test",)], ids=["none", "hosts"])
async def test_11_no_name_is_looked_up_and_no_datagram_leaves(world: World, network: Any) -> None:
    """Without the whole network there is no way for DNS or UDP either."""
    code = "import socket as s; u = s.socket(2, 2); u.sendto(b'x', ('192.0.2.1', 53))"
    done, _ = await within(world.repo, [sys.executable, "-c", code], Sandbox(network=network))
    assert "unreachable" in done.stderr
    code = "import socket; socket.getaddrinfo('pypi.org', 443)"
    done, told = await within(world.repo, [sys.executable, "-c", code], Sandbox(network=network))
    assert done.exit_code == 1
    assert told


async def test_12_a_sandbox_in_a_sandbox_is_made_or_refused(world: World) -> None:
    """It is never left out in silence: it holds, or the command says that it cannot be made."""
    words = [
        sys.executable,
        "-m",
        "handrail.cli",
        "sandbox",
        "--",
        "sh",
        "-c",
        "echo x > /etc/x; echo in",
    ]
    done, _ = await within(world.repo, words)
    if done.exit_code:
        assert "cannot be enforced" in done.stderr
    else:
        assert (done.stdout, "Read-only" in done.stderr) == ("in\n", True)


# -- where the mechanism is absent -----------------------------------------------------------------


@pytest.fixture
def without_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where bubblewrap is not installed."""
    for name in ("sh", "git", "env", "cat"):
        where = shutil.which(name)
        assert where is not None
        (tmp_path / name).symlink_to(where)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("where", ["command", "stage", "agent"])
@pytest.mark.usefixtures("without_bwrap")
def test_without_the_mechanism_nothing_is_started(tmp_path: Path, where: str) -> None:
    """The step fails at once, names the package, is not tried again, and has no default."""
    from handrail import Agent, AgentOptions, CommandBackend, NotReady, Stage

    mark = tmp_path / "started"
    line = f"cat > {mark}; echo x > {mark}"
    agent = Agent("a", "x", backend=CommandBackend(line), options=AgentOptions(sandbox=True))

    @workflow
    def flow() -> Steps[Any]:
        if where == "command":
            return (yield from step("a").command(line, sandbox=True).retry(3, backoff=0))
        if where == "stage":
            fix = step("fix").call(mark.touch)
            stages = [Stage("s", line, sandbox=True)]
            return (yield from step("a").validate(stages, retry=2, on_failure=fix))
        return (yield from step("a").agent(agent, default="none").retry(3, backoff=0))

    result = Executor().run_sync(flow)
    assert not mark.exists()
    assert result.status == "failed"
    assert "Install the package bubblewrap" in str(result.error)
    if where != "stage":
        failed = result.step("a")
        assert failed.attempts == 1
        assert failed.is_a(SandboxUnavailable)
        assert failed.is_a(NotReady)


@pytest.mark.usefixtures("without_bwrap")
def test_without_the_mechanism_fakes_work_as_ever() -> None:
    """A fake agent starts no program, so that a workflow is tested on any machine."""
    from handrail import Agent, AgentOptions
    from handrail.agents.fake import FakeBackend

    agent = Agent("a", "x", backend=FakeBackend(["hi"]), options=AgentOptions(sandbox=True))

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("a").agent(agent)).output

    assert Executor().run_sync(flow).unwrap() == "hi"


@pytest.mark.parametrize("system", ["darwin", "freebsd14"])
def test_another_system_refuses(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    """Where handrail has no mechanism it says so, and what to do."""
    monkeypatch.setattr(sys, "platform", system)
    refused = why_unavailable()
    assert refused is not None
    assert "handrail has none for" in str(refused)
    assert "Linux" in str(refused)


def test_a_kernel_that_forbids_namespaces_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of bwrap is the reason, and what an administrator can do follows."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    refused = why_unavailable()
    assert refused is not None
    assert "setting up uid map: Permission denied" in refused.why
    assert "AppArmor" in refused.advice


# -- the whole -------------------------------------------------------------------------------------


async def test_a_program_that_is_missing_is_named_as_ever(world: World) -> None:
    """The error is that of a launch without a sandbox."""
    with pytest.raises(CommandNotFound, match="no program of this name is on PATH"):
        await within(world.repo, ["no-such-program"])
    with pytest.raises(CommandNotFound, match="not executable"):
        await within(world.repo, ["./test_pages.py"])


async def test_nothing_of_a_launch_is_left(world: World) -> None:
    """Its own /tmp is removed, and so is the proxy's thread."""
    before = set(os.listdir("/tmp"))  # noqa: PTH208
    hosts = Sandbox(network=("listed.test",))
    await within(world.repo, "mkdir -p /tmp/a/b; echo x > /tmp/a/b/c; chmod 0 /tmp/a", hosts)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        new = set(os.listdir("/tmp")) - before  # noqa: PTH208
        left = {name for name in new if name.startswith("handrail-tmp-")}
        left |= {one.name for one in threading.enumerate() if one.name == "handrail proxy"}
        if not left:
            return
        await anyio.sleep(0.02)
    pytest.fail(f"left: {left}")


KILLED = """
from handrail import Executor, Sandbox, SqliteJournal, step, workflow


def work():
    line = "echo a > a.txt; git add -A; git commit -qm A; echo x > {outside}/ready; sleep 300"
    yield from step("act").command(line, sandbox=Sandbox(write=["{outside}"]))


@workflow
def flow():
    yield from step("tree").worktree(work)


executor = Executor(journal=SqliteJournal("{root}/runs.db"))
executor.options(run_id="r-1").run_sync(flow)
"""


async def test_a_killed_host_leaves_nothing_and_its_commits_are_taken_in(world: World) -> None:
    """The program ends with its host; what it committed is there when the worktree is found."""
    file = world.root / "killed.py"
    file.write_text(KILLED.format(outside=world.outside, root=world.root))
    words = [sys.executable, str(file)]
    with subprocess.Popen(words, cwd=world.repo) as host:  # noqa: ASYNC220  # killed below
        with anyio.fail_after(60):
            while not (world.outside / "ready").exists():
                assert host.poll() is None
                await anyio.sleep(0.05)
        host.kill()
    assert lasting_carriers_of("HANDRAIL_STEP=r-1@") == []
    (quarantine,) = (world.home / ".local/state/handrail/incoming").iterdir()
    (tree,) = world.repo.glob(".handrail/worktrees/r-1/*")
    main = await repository_of(world.repo, "m")
    assert main is not None
    site = Site(main, places_of(main.root, "r-1", tree.name), "m", "a", of_steps=True)
    assert await site.find() is not None
    assert git(tree, "log", "-1", "--format=%s") == "A"
    assert git(tree, "status", "--short") == ""
    assert not quarantine.exists()


def test_what_was_staged_and_not_committed_is_there(world: World) -> None:
    """A later step without a sandbox commits what an agent staged within one."""

    def work() -> Steps[Any]:
        yield from step("stage").command("echo a > a.txt; git add a.txt", sandbox=True)
        yield from step("commit").command(["git", "commit", "--quiet", "-m", "A"])

    @workflow
    def flow() -> Steps[Any]:
        yield from step("tree").worktree(work)

    Executor().run_sync(flow).unwrap()
    assert git(world.repo, "log", "-1", "--format=%s") == "A"
    assert (world.repo / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize("where", ["executor", "project", "off"])
def test_a_run_has_one_sandbox_for_all_its_launches(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """`Executor(sandbox=)` and `[tool.handrail]` reach every launch; False opts out."""
    from handrail import Agent, CommandBackend, Stage

    line = f"cat >/dev/null; echo x > {world.outside}/$WHO"
    agent = Agent("a", "x", backend=CommandBackend(line, env={"WHO": "agent"}))

    @workflow
    def flow() -> Steps[Any]:
        own = False if where == "off" else None
        who = {"WHO": "command"}
        yield from step("c").command(line, env=who, check=False, sandbox=own)
        stage = Stage("s", f"WHO=stage; {line}; true", sandbox=own)
        yield from step("v").validate([stage], retry=0)
        yield from step("a").agent(agent).skip_on_error()

    if where == "project":
        (world.repo / "pyproject.toml").write_text(
            "[tool.handrail]\nsandbox = {network = 'none'}\n"
        )
    sink = MemorySink()
    Executor(sinks=[sink], sandbox=None if where == "project" else True).run_sync(flow)
    written = {path.name for path in world.outside.iterdir()} - {"file.txt"}
    assert written == ({"command", "stage"} if where == "off" else set())
    paths = {event.path.split("/")[0] for event in sink.of(ev.SandboxDenied)}
    assert paths == ({"a"} if where == "off" else {"c", "v", "a"})


COST_S = {"full": 0.030, "hosts": 0.050}


@pytest.mark.parametrize("network", COST_S)
async def test_a_launch_costs_little_more(world: World, network: str) -> None:
    """At most 30 ms of a processor more than a bare one, with hosts 50, at its best."""
    wanted = Sandbox(network="full" if network == "full" else ("listed.test",))

    async def best_s(sandbox: Sandbox | None) -> float:
        times: list[float] = []
        for _ in range(15):
            boundary = None if sandbox is None else Confinement(sandbox, Scene(world.repo), print)
            began = _processor_s()
            mark = f"cost-{os.urandom(4).hex()}"
            await run_process(["true"], marker=mark, cwd=world.repo, boundary=boundary)
            times.append(_processor_s() - began)
        return min(times)

    bare_s = await best_s(None)
    assert await best_s(wanted) - bare_s <= COST_S[network]


def _processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.mark.usefixtures("world")
def test_the_trial_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine can do is tried by the first launch, not by each."""
    monkeypatch.setattr(bubblewrap, "filter_for", lambda: pytest.fail("tried again"))
    assert why_unavailable() is None
