"""What is read of other processes is what they are."""

from __future__ import annotations

import os
import subprocess

from handrail.system import marker


def test_a_process_does_not_see_itself() -> None:
    """Whoever looks is not among the found, so it cannot kill itself."""
    pids = set(marker.live_pids())
    assert os.getpid() not in pids
    assert os.getppid() in pids


def test_the_environment_of_a_child_is_read_whole() -> None:
    """An environment longer than one read comes back with its last variable."""
    env = {**{f"V{number}": "x" * 50_000 for number in range(8)}, "LAST": "y"}
    with subprocess.Popen(["/bin/cat"], env=env, stdin=subprocess.PIPE) as child:
        variables = marker.environ_of(child.pid).split(b"\0")
    assert {variable.partition(b"=")[0].decode() for variable in variables if variable} == set(env)


def test_a_process_may_have_no_environment_at_all() -> None:
    """A live process without variables has an empty one, however old it may be."""
    with subprocess.Popen(["/bin/cat"], env={}, stdin=subprocess.PIPE) as child:
        later = marker.stat_of(child.pid).start_ticks + 1
        assert marker.environ_of(child.pid) == b""
        assert marker.environ_of(child.pid, since_ticks=later) == b""


def test_a_zombie_is_not_alive_and_has_no_environment() -> None:
    """A process that exited and was not reaped is dead, and so is one that is gone."""
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    assert marker.stat_of(child.pid).alive
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not marker.stat_of(child.pid).alive
    assert marker.environ_of(child.pid) == b""
    child.wait()
    assert not marker.stat_of(child.pid).alive
    assert marker.environ_of(child.pid) == b""


def test_sessions_and_groups_of_dead_processes_are_unknown() -> None:
    """A child has the session it was given, and none once it is gone."""
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True)
    assert (marker.session_of(child.pid), marker.group_of(child.pid)) == (child.pid, child.pid)
    child.communicate()
    assert (marker.session_of(child.pid), marker.group_of(child.pid)) == (0, 0)


def test_process_ids_wrap_somewhere_above_this_one() -> None:
    """The number that ids wrap at is larger than any id."""
    assert marker.pid_max() > os.getpid()
