"""Compares the page docs/how-to/limit-what-agents-write.md with the code, in the names of its blocks."""

import os
import subprocess
from pathlib import Path

os.environ.update(
    GIT_AUTHOR_NAME="me",
    GIT_AUTHOR_EMAIL="me@localhost",
    GIT_COMMITTER_NAME="me",
    GIT_COMMITTER_EMAIL="me@localhost",
)


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


Path("src").mkdir()
Path("src/app.py").write_text("answer = 41\n")
Path("README.md").write_text("# App\n")
git("init", "--quiet")
git("add", ".")
git("commit", "-m", "first")

# ---
assert (
    "agent 'coder' changed 1 file outside of what it may write ('src/**'):\n  README.md (changed)\n"
    in result.error
)
(patch,) = Path(".handrail/quarantine").rglob("*.patch")
git("apply", str(patch))
assert Path("README.md").read_text() == "# My app\n"
git("checkout", ".")
