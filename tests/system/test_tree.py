"""The tree of a child holds all it started, and nobody else."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.system.ending import ProcessTree, oldest_descendant
from handrail.system.marker import marked_environment


@pytest.fixture
def marker() -> str:
    """A marker that no other process carries."""
    return f"test-{uuid.uuid4().hex}/step"


@pytest.fixture
def started(marker: str) -> Iterator[Started]:
    """Starts shells; what they started is killed afterwards."""
    family = Started(marker)
    yield family
    family.end()


class Started:
    """A shell whose script says ``ready`` when all that it starts has been started. Mutable."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.trees: list[tuple[subprocess.Popen[bytes], ProcessTree]] = []

    def __call__(self, script: str) -> tuple[subprocess.Popen[bytes], ProcessTree]:
        """A shell that runs this script, and its tree, once it has said ``ready``."""
        env = {"PATH": "/usr/bin:/bin", **marked_environment(self.marker, {})}
        child = subprocess.Popen(
            ["/bin/sh", "-c", script], env=env, stdout=subprocess.PIPE, start_new_session=True
        )
        tree = ProcessTree(child, self.marker)
        self.trees.append((child, tree))
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child, tree

    def end(self) -> None:
        """Kill and reap what was started."""
        for child, tree in self.trees:
            tree.signal(signal.SIGKILL)
            child.communicate()


def test_a_child_alone_has_no_rest(started: Started) -> None:
    """The child itself is not among the rest of its tree, and nor are other processes."""
    _, tree = started("echo ready; exec sleep 60")
    assert tree.others() == set()


def test_background_processes_belong_wherever_they_went(started: Started) -> None:
    """One in the group, one in another session, and one without an environment are all found."""
    script = "sleep 60 & setsid sleep 61 & env -i sleep 62 & echo ready; exec sleep 60"
    _, tree = started(script)
    assert len(tree.others()) == 3


def test_sigterm_reaches_each_process_of_the_tree(started: Started) -> None:
    """After SIGTERM nothing is left of processes that do not resist it."""
    child, tree = started("setsid sleep 60 & sleep 60 & echo ready; exec sleep 60")
    assert len(tree.signal(signal.SIGTERM)) == 2
    assert child.stdout is not None
    assert (child.stdout.read(), child.wait(10)) == (b"", -15)


def test_what_an_inner_run_started_is_left_to_it_until_sigkill(started: Started) -> None:
    """A process under an inner marker survives SIGTERM of the outer tree, and SIGKILL does not."""
    markers = "HANDRAIL_OUTER_STEPS=$HANDRAIL_STEP HANDRAIL_STEP=inner/x"
    inner = f"{markers} setsid sh -c 'echo ready; exec sleep 60'"
    child, tree = started(f"{inner} & exec sleep 60")
    rest = tree.signal(signal.SIGTERM)
    child.wait(10)
    assert (len(rest), tree.alive_of(rest)) == (1, rest)
    tree.signal(signal.SIGKILL)
    assert child.stdout is not None
    assert child.stdout.read() == b""


@given(st.integers(1, 1 << 22), st.floats(0, 1e6), st.integers(1 << 8, 1 << 22))
def test_ids_that_may_have_wrapped_are_all_looked_at(child: int, age: float, pid_max: int) -> None:
    """The search starts above the child's id only if ids cannot have come round to 1 since."""
    floor = oldest_descendant(child, age, pid_max=pid_max)
    assert floor == (child if child + age * 100_000 < pid_max else 0)
