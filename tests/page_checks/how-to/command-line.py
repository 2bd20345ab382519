"""Compares the page docs/how-to/command-line.md with the code, in the names of its blocks."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

from handrail.cli import main

PAGE = PAGE_FILE.read_text("utf-8")
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}


def handrail(line, stdin=""):
    """What a line of the page prints, on stdout and stderr together, and its exit code."""
    if stdin or "|" in line:
        done = subprocess.run(
            f"{sys.executable} -m handrail.cli {line}",
            shell=True,
            text=True,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            input=stdin,
        )
        return plain(done.stdout), done.returncode
    with contextlib.ExitStack() as around:
        for change in (
            mock.patch.dict(os.environ, ENVIRONMENT),
            mock.patch.object(sys, "path", [*sys.path]),
            mock.patch.object(sys, "dont_write_bytecode", True),
            mock.patch.object(sys, "stdin", io.StringIO()),
        ):
            around.enter_context(change)
        said = io.StringIO()
        around.enter_context(contextlib.redirect_stdout(said))
        around.enter_context(contextlib.redirect_stderr(said))
        code = main(shlex.split(line))
    return plain(said.getvalue()), code


def plain(text):
    """The text without what differs from run to run: times, ids, dates, the process."""
    text = re.sub(
        r"-\d{6}-\d{6}-[0-9a-f]{8}| (in|after) [\d.]+ m?s|  [\d.]+ m?s| *, [\d.]+ m?s ago", "", text
    )
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    return re.sub(r" +", " ", text)


def shown():
    """Each console block of the page: its command, and what the page says it prints."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield line, plain(output)


# ---
Path("deploy.py").write_text(re.search(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1])

# ---
for line, output in shown():
    assert line.replace("echo no | ", "").startswith("handrail "), line
    stdin = "no\n" if line.startswith("echo no | ") else ""
    printed, code = handrail(line.replace("echo no | ", "").removeprefix("handrail "), stdin)
    assert printed == output, (line, printed, output)

assert handrail("run deploy.py --input version=1 --gates approve --quiet")[1] == 0
assert handrail("run deploy.py --input version=1 --gates fail --quiet")[1] == 1
assert handrail("run deploy.py --quiet")[1] == 2
assert handrail("run deploy.py --input version=1 --quiet")[1] == 3
Path("values.toml").write_text('version = "2"\nparts = 1\n')
assert handrail("run deploy.py --inputs values.toml --gates approve --quiet") == ("deployed\n", 0)
assert handrail("init my_flow")[1] == 0
said, code = handrail("run deploy.py --input version=2.0 --run-id tuesday --detach")
assert (code, said.startswith("tuesday\nhandrail: driven by process ")) == (0, True), said
assert said.rstrip().endswith("/.handrail/runs/deploy-tuesday/detached.log"), said
while handrail("answer tuesday 'go?' yes --by ana") != ("answered 'go?' with 'yes', by ana\n", 0):
    time.sleep(0.05)
assert handrail("tail tuesday")[1] == 0
assert {"my_flow.py", "test_my_flow.py"} <= {path.name for path in Path().iterdir()}
