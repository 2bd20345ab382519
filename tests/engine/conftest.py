"""Which tests of the engine need one event loop only: what they are of knows no loop."""

from __future__ import annotations

from pathlib import Path

import pytest

ON_ONE_LOOP = {
    "test_agent_steps.py",
    "test_answers_of_agents.py",
    "test_arguments.py",
    "test_budgets.py",
    "test_changed_code.py",
    "test_composition.py",
    "test_driven_again.py",
    "test_forgotten_yields.py",
    "test_histories.py",
    "test_hostile_exports.py",
    "test_ladder.py",
    "test_options_refused_early.py",
    "test_portable.py",
    "test_recorded_values.py",
    "test_records_of_other_code.py",
    "test_redaction.py",
    "test_replacements.py",
    "test_results.py",
    "test_resume.py",
    "test_step_names.py",
    "test_undone_after_crashes.py",
    "test_unwound_as_it_was_left.py",
    "test_validate.py",
    "test_waits_for.py",
}
"""Files of what follows from a record: without threads, or an order that the loop decides."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave out the second loop where it would show nothing new."""
    path = Path(metafunc.module.__file__ or "")
    if path.name in ON_ONE_LOOP and "anyio_backend" in metafunc.fixturenames:
        one = pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="session")
        metafunc.definition.add_marker(one)
