"""What every test shares: both event loops, Hypothesis's profiles, and tests that need an extra."""

from __future__ import annotations

import gc
import importlib.util
import signal
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell without job control has what it starts in the background ignore SIGINT, and so would all
# programs that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A run of the suite can be repeated; `nox -s soak` looks for new examples.
settings.register_profile(
    "repeatable",
    max_examples=30,  # the same in every run; the soak looks at thousands of new ones
    deadline=None,  # a shared machine stalls, and nothing here is a timed test
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "brief",  # for the further Pythons: what they do otherwise shows in few examples
    settings.get_profile("repeatable"),
    max_examples=10,
)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# Folders and files that need optional modules; others say `@pytest.mark.extra("jinja2")`.
FOLDERS_OF_EXTRAS = {
    "agents": ["jinja2"],
    "agents/test_api_backend.py": ["jinja2", "pydantic_ai"],
    "cli": ["cyclopts", "rich"],
    "coordination/test_hub_claims.py": ["cyclopts", "websockets"],
    "coordination/test_server.py": ["cyclopts", "websockets"],
    "examples": ["cyclopts", "jinja2", "rich"],
    "examples/test_approvals.py": ["httpx2", "starlette", "uvicorn"],
    "hub_programs": ["websockets"],
    "mcp": ["cyclopts", "mcp"],
    "sinks/test_otel.py": ["opentelemetry"],
    "web/test_access.py": ["starlette", "httpx2"],
    "web/test_api.py": ["starlette", "httpx2"],
    "web/test_live.py": ["cyclopts", "starlette", "uvicorn"],
    "yaml": ["cyclopts", "jinja2", "rich", "simpleeval", "yaml"],
}

ON_ONE_LOOP = (
    "cli/test_stuck.py",
    "coordination/*",
    "mcp/*",
    "durability/test_[!l]*",  # all but a late cancellation, and a locked journal
    "engine/test_agent_steps.py",
    "engine/test_answers_of_agents.py",
    "engine/test_arguments.py",
    "engine/test_budgets.py",
    "engine/test_changed_code.py",
    "engine/test_composition.py",
    "engine/test_driven_again.py",
    "engine/test_executor_options.py",
    "engine/test_failures.py",
    "engine/test_forgotten_yields.py",
    "engine/test_guide.py",
    "engine/test_histories.py",
    "engine/test_hostile_exports.py",
    "engine/test_in_time_order.py",
    "engine/test_ladder.py",
    "engine/test_limits.py",
    "engine/test_options_refused_early.py",
    "engine/test_portable.py",
    "engine/test_recorded_values.py",
    "engine/test_records_of_other_code.py",
    "engine/test_redaction.py",
    "engine/test_registered_again.py",
    "engine/test_replacements.py",
    "engine/test_results.py",
    "engine/test_resume.py",
    "engine/test_rollbacks.py",
    "engine/test_scopes.py",
    "engine/test_session_owner.py",
    "engine/test_signals.py",
    "engine/test_sinks.py",
    "engine/test_starting.py",
    "engine/test_step_names.py",
    "engine/test_undone*.py",
    "engine/test_unwound_as_it_was_left.py",
    "engine/test_validate.py",
    "engine/test_waits_for.py",
    "engine/test_work.py",
    "journals/test_memory.py",
    "testing/test_crashes.py",
    "testing/test_fake_cli.py",
    "testing/test_replays.py",
    "testing/test_text_journal.py",
    "web/*",
)
"""Where the second event loop would show nothing new: tests of records and decisions, without
threads, or an order that the loop decides.
"""


def _missing(modules: list[str]) -> list[str]:
    return [module for module in modules if importlib.util.find_spec(module) is None]


# tests/typing is read by the type checkers, not run.
collect_ignore = ["typing", *(name for name, needs in FOLDERS_OF_EXTRAS.items() if _missing(needs))]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all-extras`, for the run that may leave nothing out."""
    parser.addoption(
        "--all-extras",
        action="store_true",
        help="fail if an optional module is missing, rather than leave out the tests that need it",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave out the second event loop where it would show nothing new."""
    file = Path(metafunc.module.__file__ or "")
    place = f"{file.parent.name}/{file.name}"
    if "anyio_backend" in metafunc.fixturenames and any(fnmatch(place, one) for one in ON_ONE_LOOP):
        one = pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="session")
        metafunc.definition.add_marker(one)


@pytest.hookimpl(trylast=True)  # after what `-m` leaves out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose optional modules are not installed."""
    needs = {
        item: [name for mark in item.iter_markers("extra") for name in mark.args] for item in items
    }
    modules = {name for names in (*needs.values(), *FOLDERS_OF_EXTRAS.values()) for name in names}
    absent = _missing(sorted(modules))
    if absent and config.getoption("all_extras"):
        raise pytest.UsageError(f"--all-extras: not installed: {', '.join(absent)}")
    left_out = [item for item in items if set(absent).intersection(needs[item])]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile, which took a third of the time, nor later among what is then
    there: all tests, and what they import.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept out of agents' reach goes into a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def outside_git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A current folder outside this repository: what steps claim by name counts in theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("outside"))
        yield


@pytest.fixture(
    scope="session", params=["asyncio", pytest.param("trio", marks=pytest.mark.extra("trio"))]
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Each event loop in turn, so that every async test runs on asyncio and on trio."""
    return str(request.param)
