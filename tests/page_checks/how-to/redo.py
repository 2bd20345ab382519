"""Compares the page docs/how-to/redo.md with the code, in the names of its blocks."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

PAGE = PAGE_FILE
shutil.copy(PAGE.parents[2] / "examples/pipeline.py", "pipeline.py")
Path("prices.txt").write_text("tea 300\nmilk 120\nsalt 90\n")
(console,) = re.findall(
    r"^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
)
for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
    line, _, shown = part.partition("\n")
    line = (
        line.partition("  #")[0]
        .replace("python ", f"{sys.executable} ")
        .replace("handrail ", f"{sys.executable} -m handrail ")
    )
    done = subprocess.run(line, shell=True, text=True, capture_output=True)
    assert done.stdout.strip() == shown.strip(), (line, done.stdout, done.stderr)
