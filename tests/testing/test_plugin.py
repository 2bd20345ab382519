"""The kit as it is installed: the pytest plugin, and imports that cost nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import handrail

SUITE = """
    import sys

    from handrail.testing import contracts


    def test_nothing_is_imported_before_a_fixture_is_used():
        assert "handrail.engine.executor" not in sys.modules


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
    """A suite gets a clock, a sink and an executor on both, which are imported when first used."""
    (tmp_path / "test_suite.py").write_text(
        "\n".join(line.removeprefix("    ") for line in SUITE.splitlines())
    )
    done = python(
        "-m", "pytest", "-q", "-p", "handrail.testing.plugin", "-k", "not Broken", folder=tmp_path
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_costs_nothing_to_load(tmp_path: Path) -> None:
    """Loading the plugin imports no more of handrail than the packages it lies in."""
    done = python("-c", NOTHING_YET, folder=tmp_path)
    assert done.stdout.split() == ["handrail", "handrail.testing", "handrail.testing.plugin"]


def test_the_kit_needs_neither_pytest_nor_hypothesis(tmp_path: Path) -> None:
    """Without them everything but the contracts and the strategies is there, and no event loop."""
    done = python("-c", NO_PYTEST, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_every_name_of_the_kit_can_be_imported() -> None:
    """What the package lists is there, and what it does not list is refused."""
    import handrail.testing as kit

    for name in kit.__all__:
        assert getattr(kit, name) is not None
    assert set(kit.__all__) <= set(dir(kit))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = kit.Nothing  # type: ignore[attr-defined]
