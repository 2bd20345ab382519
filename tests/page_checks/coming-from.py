"""Compares the page docs/coming-from.md with the code, in the names of its blocks."""

import os
import re
import subprocess
from pathlib import Path

from handrail import Executor, FakeBackend


def repair(turn):
    assert "red" in turn.prompt
    Path("green").touch()
    return "Done."


fake = FakeBackend([repair] * 2, name="claude")
test = "test -e green || { echo red; exit 1; }"
result = Executor(
    agents={"fixer": Agent("fixer", fixer.prompt, backend=fake)}, gates="approve"
).run_sync(publish, test)
assert result.failed_step == "upload", result.error  # there is no upload.sh yet
Path("upload.sh").write_text("echo up >> uploads\n")
result = Executor(
    agents={"fixer": Agent("fixer", fixer.prompt, backend=fake)}, gates="approve"
).run_sync(publish, test)
assert result.value == "yes" and Path("uploads").read_text() == "up\n"

PAGE = PAGE_FILE.read_text("utf-8")
(loop,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
Path("green").unlink()
Path("bin").mkdir()
for name, body in {"claude": "touch green", "pytest": "test -e green"}.items():
    Path("bin", name).write_text(f"#!/bin/sh\n{body}\n")
    Path("bin", name).chmod(0o755)
env = {**os.environ, "PATH": f"{Path('bin').resolve()}:{os.environ['PATH']}"}
subprocess.run(["bash", "-c", loop], input="yes\n", text=True, env=env, check=True)
assert Path("uploads").read_text() == "up\nup\n"
for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
    compile(block, "page", "exec")
