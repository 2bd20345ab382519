"""Claims that a hub keeps: the laws of the port, and one set with those of outsiders."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import pytest

from handrail import ClaimsFailed, ClaimTimeout, Executor, HubClaims, Steps, step, workflow
from handrail.coordination import hub_claims
from handrail.ports.claims import Claim, Claimant, ClaimRequest, Claims, Resource
from handrail.testing.contracts import ClaimsContract
from tests.coordination.running import Running, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One whose repository is not that of the tests."""
    folder = tmp_path_factory.mktemp("hub")
    with running("--db", "hub.db", "--root", folder, cwd=folder) as found:
        yield found


class TestHubClaims(ClaimsContract):
    @pytest.fixture
    async def open_claims(self, hub: Running) -> AsyncIterator[Callable[[], Claims]]:
        """Clients that share nothing but the hub."""
        opened: list[HubClaims] = []

        def open_one() -> Claims:
            opened.append(HubClaims(hub.url))
            return opened[-1]

        yield open_one
        left = HubClaims(hub.url)
        for claim in (await left.listed()).held:
            await left.release(claim)
        for claims in (*opened, left):
            await claims.close()


def request(run: str, name: str, **more: float) -> ClaimRequest:
    """A request of a run for a name."""
    return ClaimRequest(Claimant(run), (Resource(name, repository="/r/.git"),), **more)


@workflow
def pushes() -> Steps[int]:
    """Something that only one may do at a time."""
    return (yield from step("push").call(len, "pushed").holds("push"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with a repository in it."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


async def test_a_run_waits_for_an_outsider_who_sees_it(repository: Path) -> None:
    """A step that holds a name begins when an outsider has released it, and is named meanwhile."""
    with running("--root", repository, cwd=repository) as hub:
        outsider = hub.client("ann")
        await anyio.to_thread.run_sync(lambda: outsider.claim("push", paths=["CHANGES"]))
        claims = HubClaims(hub.url)
        waits = anyio.Event()

        def see(event: object) -> None:
            if type(event).__name__ == "ClaimWaiting":
                waits.set()

        with anyio.fail_after(20), pytest.MonkeyPatch.context() as patch:
            patch.chdir(repository)
            executor = Executor(claims=claims, sinks=[Noting(see)])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(executor.options(run_id="r-1").run, pushes)
                await waits.wait()
                (waiting,) = (await claims.listed()).waiting
                assert (waiting.claimant.run, waiting.behind[0].run) == ("r-1", "ann")
                outsider.say("release", task_id="push")
        await anyio.to_thread.run_sync(lambda: outsider.until("claim_granted", task_id="push"))
        assert outsider.heard[-1]["owner"] == "r-1"
        await anyio.to_thread.run_sync(lambda: outsider.until("release_granted", owner="r-1"))
        await claims.close()


class Noting:
    """A sink that calls a function."""

    def __init__(self, see: Callable[[object], None]) -> None:
        self.emit = see


async def test_a_hub_that_is_killed_takes_nothing_from_runs(tmp_path: Path) -> None:
    """Who had something has it, and who waited waits, when the hub is there again on its file."""
    with running("--db", "h.db", cwd=tmp_path) as hub:
        one, other = HubClaims(hub.url), HubClaims(hub.url)
        claim = await one.acquire(request("a", "x"))
        waits, ends, granted = anyio.Event(), anyio.Event(), list[Claim]()

        async def wait() -> None:
            granted.append(await other.acquire(request("b", "x"), waiting=lambda _: waits.set()))
            ends.set()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await waits.wait()
                hub.process.kill()
                with running("--db", "h.db", cwd=tmp_path, port=hub.port):
                    assert await one.is_held(claim)
                    assert len((await one.listed()).waiting) == 1
                    with pytest.raises(ClaimTimeout):
                        await one.acquire(request("c", "x", wait_s=0))
                    await one.release(claim)
                    await ends.wait()
                    assert granted[0].epoch > claim.epoch
                    await one.close()
                    await other.close()


HOLDER = """
import anyio, sys
from handrail import HubClaims
from handrail.ports.claims import Claimant, ClaimRequest, Resource

async def main():
    claims = HubClaims(sys.argv[1])
    await claims.acquire(ClaimRequest(Claimant("a"), (Resource("x", repository="/r/.git"),)))
    print("held", flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


def holding(url: str) -> subprocess.Popen[str]:
    """A process that holds something."""
    command = [sys.executable, "-c", HOLDER, url]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


async def test_what_a_killed_process_held_is_free_after_the_grace(tmp_path: Path) -> None:
    """The next in line has it without anybody's help."""
    with running("--grace", "0.3", cwd=tmp_path) as hub:
        with holding(hub.url) as holder:
            claims = HubClaims(hub.url)
            with pytest.raises(ClaimTimeout, match="run a"):
                await claims.acquire(request("b", "x", wait_s=0))
            holder.kill()
            with anyio.fail_after(20):
                assert (await claims.acquire(request("b", "x"))).epoch > 1
        await claims.close()


async def test_a_rate_makes_runs_slower_and_nothing_else(tmp_path: Path) -> None:
    """A process that asks more than the hub takes asks again, until it has its answer."""
    with running("--rate", "20", "--burst", "1", cwd=tmp_path) as hub:
        claims = HubClaims(hub.url)
        with anyio.fail_after(20):
            held = [await claims.acquire(request("a", f"x{number}")) for number in range(4)]
            assert len((await claims.listed()).held) == len(held)
        await claims.close()


async def test_a_hub_that_cannot_be_asked_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a hub, or without its token, a claim fails and says why."""
    monkeypatch.setattr(hub_claims, "FAILS_S", 0.2)
    (tmp_path / "tokens").write_text("a-token-of-tests\n")
    with running("--token-file", "tokens", cwd=tmp_path) as hub:
        for token, why in ((None, "token required"), ("another-token", r"Invalid.* token\.$")):
            with pytest.raises(ClaimsFailed, match=f"{hub.url}.*{why}"):
                await HubClaims(hub.url, token).acquire(request("a", "x"))
        claims = HubClaims(hub.url, "a-token-of-tests")
        claim = await claims.acquire(request("a", "x"))
        hub.process.kill()
        with pytest.raises(ClaimsFailed, match=f"{hub.url}.*`handrail hub` starts a hub"):
            await claims.is_held(claim)
        await claims.close()
    with pytest.raises(ClaimsFailed, match="cannot see whether process"):
        await claims.acquire(ClaimRequest(Claimant("a"), (Resource("x"),), pid=1))
