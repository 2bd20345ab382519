"""Writes the journals, and ``expected.json``: how each run ends with the code that wrote them.

They are the one set of samples of the format of 0.1. Run by hand, from any folder, after the format
was changed on purpose; once 0.1 is released, never again::

    python tests/durability/journals_of_0_1/make.py
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def load(name: str) -> Any:
    """A module of this folder, whose tracebacks do not say where that is."""
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    code = compile((HERE / f"{name}.py").read_text("utf-8"), module.__file__, "exec")
    exec(code, vars(module))
    return module


os.chdir(HERE)
ROOT = Path(tempfile.gettempdir(), "handrail-0.1")
ROOT.unlink(missing_ok=True)
ROOT.symlink_to(HERE.parents[2])
sys.path.insert(0, str(ROOT / "src"))  # what tracebacks call it
enter = contextlib._GeneratorContextManager.__enter__
enter.__code__ = enter.__code__.replace(co_filename="contextlib.py")  # as above
actions, values, _, _, drives = map(load, ("actions", "values", "models", "workflows", "drives"))


def in_a_process(work: Callable[[], object]) -> None:
    """Do it in a copy of this process, which may be killed."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        ended = 1
        try:
            work()
            ended = 0
        except KeyboardInterrupt:
            ended = 0
        except BaseException:  # noqa: BLE001  # said, and told by the exit code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(ended)
    _, status = os.waitpid(pid, 0)
    assert status in {0, signal.SIGKILL}, status


def one_life(file: Path, run_id: str, number: int) -> None:
    """Be one life of a run; the first is number 1."""
    run = drives.RUNS[run_id]
    life = run.lives[number - 1]
    actions.WORLD.life, actions.WORLD.effects = number, Path(os.devnull)

    def on_event(event: Any) -> None:
        if (type(event).__name__, getattr(event, "path", "")) == life.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    drive = drives.drive_of(file, run_id, life, on_event)
    result = drives.live(drive, run, life)
    if result is not None:
        sys.stdout.write(f"{run_id} {number}: {result.status} {result.error or ''}\n")
    drive.journal.close()


def tidy(file: Path) -> None:
    """Leave one file, that does not say on which machine it was written."""
    connection = sqlite3.connect(file)
    connection.execute("UPDATE leases SET host = 'elsewhere', boot = 'another', pid = 1")
    connection.execute("UPDATE leases SET since = 0, renewed_at = 0, expires_at = 0")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert not list(file.parent.glob(f"{file.name}-*"))


def main() -> None:
    """Write every file."""
    os.environ[values.VARIABLE] = values.SECRET
    expected: dict[str, Any] = {}
    for name, runs in drives.JOURNALS.items():
        file = HERE / f"{name}.db"
        file.unlink(missing_ok=True)
        for run_id, run in runs.items():
            for number in range(1, len(run.lives) + 1):
                in_a_process(lambda r=run_id, n=number, f=file: one_life(f, r, n))
        tidy(file)
        for run_id in runs:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder, file.name)
                shutil.copyfile(file, copy)
                said = Path(folder, "said.json")
                effects = Path(folder, "effects")
                in_a_process(
                    lambda c=copy, r=run_id, e=effects, s=said: s.write_text(
                        json.dumps(drives.brought_to_an_end(c, r, e))
                    )
                )
                expected[run_id] = {"journal": name, **json.loads(said.read_text())}
    seen: dict[str, str] = {}
    for run_id, one in expected.items():  # many come to the same end
        same = seen.setdefault(json.dumps(one["result"]), run_id)
        one["result"] = one["result"] if same == run_id else same
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in expected.items())
    ROOT.unlink()
    (HERE / "expected.json").write_text(f"{{\n{text}\n}}\n", "utf-8")


if __name__ == "__main__":
    main()
