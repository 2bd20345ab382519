"""The kit as it is installed: the pytest plugin, and imports that cost nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import handrail

SUITE = """
    import sys

    from handrail.testing import contracts


    def test_nothing_is_imported_before_a_fixture_is_used():
        assert "handrail.engine.engine" not in sys.modules


    def test_the_fixtures_belong_together(handrail_executor, jump_clock, memory_sink):
        from handrail import step, workflow

        @workflow
        def naps():
            yield from step("nap").sleep(3600)

        before = jump_clock.now()
        result = handrail_executor.run_sync(naps)
        assert result.success
        assert jump_clock.now() == before + 3600
        memory_sink.assert_ended("nap")


    class TestBroken(contracts.SinkContract):
        pass
"""

IN_A_REPOSITORY = """
    import shutil
    import subprocess


    def test_a_fake_writes_nothing_into_the_repository(fake_cli, tmp_path, monkeypatch):
        from handrail import Agent, Executor, step, workflow
        from handrail.testing import Says

        subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
        monkeypatch.chdir(tmp_path)
        claude = fake_cli("claude", [Says("ok", writes={"src/a.py": "a = 2"})])
        coder = Agent("coder", "Fix it.", backend="claude")

        @workflow
        def fixes():
            return (yield from step("fix").agent(coder, writes=["src/**"])).output

        result = Executor().run_sync(fixes)
        assert result.success, result.error
        assert [path.name for path in tmp_path.glob("[!.]*")] == ["src"]
        assert len(claude.calls) == 1


    def test_crashes_write_nothing_into_the_repository(crash_everywhere, tmp_path):
        from handrail import step, workflow

        @workflow
        def one():
            yield from step("one").call(print)

        crash_everywhere(one, only=[(3, "before")])
        assert list(tmp_path.iterdir()) == []


    def test_the_end_needs_no_folder(fake_cli):
        shutil.rmtree(fake_cli("claude", ["x"]).folder)
"""

EVERYTHING = """
import sys

sys.modules["pytest"] = sys.modules["hypothesis"] = None
from handrail.testing import *

assert {"Script", "fake_cli", "crash_everywhere"} <= set(dir())
for module in ("contracts", "strategies"):
    try:
        exec(f"from handrail.testing import {module}")
    except ModuleNotFoundError as error:
        print(error)
"""

NO_PYTEST = """
import sys

sys.modules["pytest"] = sys.modules["hypothesis"] = None
import handrail.testing
from handrail.testing import FakeAgent, FakeBackend, JumpClock, MemorySink, Pending, Script

print(*sorted(name for name in sys.modules if name.partition(".")[0] in {"asyncio", "trio"}))
"""

NOTHING_YET = """
import sys
import handrail.testing.plugin

print(*sorted(name for name in sys.modules if name.startswith("handrail")))
"""


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What this Python does with these arguments, without plugins that it finds installed."""
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(handrail.__file__).parents[1]),  # the one that is tested here
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )


def test_the_plugin_brings_its_fixtures(tmp_path: Path) -> None:
    """A suite gets a clock, a sink and an executor on both, which are imported when first used; the
    repository in ``tmp_path`` has what the workflow writes and nothing else; a folder that is gone
    at the end is no error.
    """
    for name, suite in {"test_a": SUITE, "test_b": IN_A_REPOSITORY}.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(suite))
    done = python(
        "-m", "pytest", "-q", "-p", "handrail.testing.plugin", "-k", "not Broken", folder=tmp_path
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_costs_nothing_to_load(tmp_path: Path) -> None:
    """Loading the plugin imports no more of handrail than the packages it lies in."""
    done = python("-c", NOTHING_YET, folder=tmp_path)
    assert done.stdout.split() == ["handrail", "handrail.testing", "handrail.testing.plugin"]


def test_the_kit_needs_neither_pytest_nor_hypothesis(tmp_path: Path) -> None:
    """Without them everything but the contracts and the strategies is there, and no event loop."""
    done = python("-c", NO_PYTEST, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_a_star_takes_what_needs_no_other_library(tmp_path: Path) -> None:
    """It works without pytest and hypothesis; the modules that need them say which is missing."""
    done = python("-c", EVERYTHING, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "handrail.testing.contracts needs pytest: pip install pytest",
        "handrail.testing.strategies needs hypothesis: pip install hypothesis",
    ]


def test_a_star_takes_neither_module_where_their_libraries_are_there() -> None:
    """What it takes does not depend on what is installed; both can still be asked for."""
    taken: dict[str, object] = {}
    exec("from handrail.testing import *", taken)  # no function may have it
    assert {"contracts", "strategies"}.isdisjoint(taken)

    import handrail.testing as kit

    assert {"contracts", "strategies"} <= set(dir(kit))
    assert kit.contracts.SinkContract.__module__ == "handrail.testing.contracts.sink"


def test_every_name_of_the_kit_can_be_imported() -> None:
    """What the package lists is there, and what it does not list is refused."""
    import handrail.testing as kit

    for name in kit.__all__:
        assert getattr(kit, name) is not None
    assert set(kit.__all__) <= set(dir(kit))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = kit.Nothing  # type: ignore[attr-defined]
