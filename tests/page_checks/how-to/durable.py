"""Compares the page docs/how-to/durable.md with the code, in the names of its blocks."""

import re
import shutil
import subprocess
import sys

PAGE = PAGE_FILE.read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
Path("report.py").write_text(BLOCKS[0])


def shell(line):
    """What a line prints, on stdout and stderr together, and its exit code."""
    line = line.replace("python ", f"{sys.executable} ")
    done = subprocess.run(
        line, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout, done.returncode


assert shell("exec python report.py") == ("", -signal.SIGKILL)
assert sorted(Path("fetched.log").read_text().split()) == ["0", "1", "2"]
Path("repaired").touch()
assert shell("python report.py") == ("succeeded part 0, part 1, part 2\n", 0)
assert sorted(Path("fetched.log").read_text().split()) == ["0", "1", "2"]
assert shell("python report.py") == ("succeeded part 0, part 1, part 2\n", 0)

# ---
from handrail.testing import ProcessGone, TextJournal

killed = TextJournal(stop_at=2, abrupt=True)
try:
    Executor(journal=killed).options(run_id="r").run_sync(bill, 30)
except ProcessGone:
    pass
assert Executor(journal=killed.reopened()).resume_sync("r", bill).value == "asked the bank about 30"

# ---
(block,) = [block for block in BLOCKS if "publish_2(" in block]
block = block.replace("texts.db", "others.db")
Path("texts.py").write_text(
    "from handrail import Executor, SqliteJournal, Steps, step, workflow\n" + block
)
(printed,) = re.findall(
    r"^Run as a script, this is what it prints:\n\n```text\n(.*?)^```",
    PAGE,
    re.DOTALL | re.MULTILINE,
)
assert shell("python texts.py") == (printed, 0), shell("python texts.py")

# ---
import sqlite3


def sql(file, query):
    with sqlite3.connect(file) as connection:
        return connection.execute(query).fetchall()


for file, query in re.findall(r'^\$ sqlite3 (?:-box )?(\S+) "(SELECT .*)"$', PAGE, re.MULTILINE):
    if "->>" not in query or sqlite3.sqlite_version_info >= (3, 38):
        assert sql(file, query), query
with sqlite3.connect(".handrail/runs.db") as source, sqlite3.connect("backup.db") as target:
    source.backup(target)
sql(".handrail/runs.db", "VACUUM INTO 'small.db'")
for copy in ("backup.db", "small.db"):
    assert (
        Executor(journal=SqliteJournal(copy)).resume_sync("monday", report).value
        == "part 0, part 1, part 2"
    )

# ---
test_the_report_survives_every_crash()
