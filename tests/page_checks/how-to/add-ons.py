"""Compares the page docs/how-to/add-ons.md with the code, in the names of its blocks."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

PAGE = PAGE_FILE.read_text("utf-8")
groups = tomllib.loads(re.search(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1])[
    "project"
]["entry-points"]
text = "".join(
    f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in entries.items())
    for group, entries in groups.items()
)
Path("site/acme-1.0.dist-info").mkdir(parents=True)
Path("site/acme-1.0.dist-info/entry_points.txt").write_text(text)
blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
Path("site/acme.py").write_text("\n\n".join(blocks[:4]))
SITE = str(Path("site").resolve())


def typed(line):
    words = [sys.executable, "-m", "handrail", *line.split()[1:]]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": SITE}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---
Path("pyproject.toml").write_text('[tool.handrail]\nsinks = ["bell"]\n')
Path("hello.py").write_text(
    re.search(r"^```python\n(from handrail import Agent, .*?)^```", PAGE, re.DOTALL | re.MULTILINE)[
        1
    ]
)
run, shown = re.search(r"^```\n\$ (.*)\n\$ (.*)\n(.*)\n```", PAGE, re.MULTILINE).groups()[:2]
said = typed(run)
assert "You said: Say hello." in said and "ding: first" in said, said
assert typed(shown) == "first\n"
assert "longest" in typed("handrail --help") and "--shelf" in typed("handrail runs --help")
assert Path("shelves/ours.db").is_file()
sys.path.insert(0, SITE)
_stack.callback(sys.path.remove, SITE)
