"""A process is known by the marker in its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid

import pytest

from handrail.errors import DefinitionError
from handrail.system.marker import carries, kill_marked, marked_environment


def environ(**variables: str) -> bytes:
    """An environment as ``/proc`` shows it."""
    return b"".join(f"{name}={value}\0".encode() for name, value in variables.items())


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HANDRAIL_STEP": "run/a"}, True),
        ({"HANDRAIL_STEP": "run/ab"}, False),
        ({"HANDRAIL_STEP": "run/a/b"}, False),
        ({"HANDRAIL_STEP": "run"}, False),
        ({"OTHER": "run/a"}, False),
        ({"OTHER": "HANDRAIL_STEP=run/a"}, False),
        ({"HANDRAIL_STEP": "inner/x", "HANDRAIL_OUTER_STEPS": "top/y\nrun/a"}, True),
    ],
)
def test_a_marker_must_be_the_whole_value(variables: dict[str, str], *, expected: bool) -> None:
    """Only a marker variable that holds exactly the marker, or lists it as outer, counts."""
    assert carries(environ(PATH="/bin", **variables), "run/a") is expected


def test_the_part_before_a_slash_stands_for_all_below() -> None:
    """With ``below`` the id of a run is carried by its steps, and by no run with a longer id."""
    assert carries(environ(HANDRAIL_STEP="run/a/b"), "run", below=True)
    assert not carries(environ(HANDRAIL_STEP="run-2/a"), "run", below=True)


def test_outer_markers_can_be_left_out() -> None:
    """Without ``outer`` only the innermost marker counts."""
    inner = environ(HANDRAIL_STEP="inner/x", HANDRAIL_OUTER_STEPS="run/a")
    assert not carries(inner, "run/a", outer=False)
    assert carries(inner, "inner/x", outer=False)


def test_a_run_inside_a_step_hands_on_the_markers_around_it() -> None:
    """Each level adds its own marker to the list of the outer ones."""
    first = marked_environment("one/a", {})
    second = marked_environment("two/b", first)
    third = marked_environment("three/c", second)
    assert first == {"HANDRAIL_STEP": "one/a"}
    assert third == {"HANDRAIL_STEP": "three/c", "HANDRAIL_OUTER_STEPS": "one/a\ntwo/b"}


@pytest.mark.parametrize("marker", ["", "two\nlines", "nul\0"])
def test_a_marker_that_could_not_be_found_again_is_refused(marker: str) -> None:
    """Empty and unprintable markers are an error that shows them."""
    with pytest.raises(DefinitionError, match="a marker must be printable"):
        marked_environment(marker, {})


def test_kill_marked_kills_all_carriers_and_counts_them() -> None:
    """Two processes of a run die by SIGKILL, one of another run and the caller live on."""
    run = f"test-{uuid.uuid4().hex}"
    sleepers = [sleeper(f"{run}/a"), sleeper(f"{run}/b/c"), sleeper(f"{run}2/a")]
    try:
        assert kill_marked(run) == 2
        assert [sleepers[0].wait(10), sleepers[1].wait(10), sleepers[2].poll()] == [-9, -9, None]
    finally:
        for process in sleepers:
            process.kill()
            process.wait()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs the program unshare")
def test_processes_whose_session_is_led_from_outside_are_found() -> None:
    """In a container the session of a process may have no id; its marker tells all the same."""
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a namespace")
    done = subprocess.run(
        [*inside, sys.executable, "-c", IN_NAMESPACE], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("0 1 -9\n", "")


IN_NAMESPACE = """
import os, subprocess
from handrail.system.marker import kill_marked

child = subprocess.Popen(["sleep", "60"], env={**os.environ, "HANDRAIL_STEP": "r/a"})
try:
    print(os.getsid(child.pid), kill_marked("r"), child.wait(10))
finally:
    child.kill()
"""


def test_kill_marked_finds_nothing_to_kill() -> None:
    """A marker that nobody carries is no error."""
    assert kill_marked(f"test-{uuid.uuid4().hex}") == 0


def sleeper(marker: str) -> subprocess.Popen[bytes]:
    """A process that carries this marker and does nothing."""
    return subprocess.Popen(["sleep", "60"], env={**os.environ, "HANDRAIL_STEP": marker})
