"""Compares the page docs/how-to/work.md with the code, in the names of its blocks."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = PAGE_FILE.read_text("utf-8")


def plain(text):
    """The text without times, and without what they change the width of."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    return re.sub(r"(, )?[\d.]+ m?s( ago)?", "", text)


(console,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(code,) = [
    one
    for one in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    if "def backlog" in one
]
Path("backlog.py").write_text(code)
for part in re.split(r"^\$ handrail ", console, flags=re.MULTILINE)[1:]:
    line, _, output = part.partition("\n")
    done = subprocess.run(
        f"{sys.executable} -m handrail.cli {line}",
        shell=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert plain(done.stdout) == plain(output), (line, done.stdout)
