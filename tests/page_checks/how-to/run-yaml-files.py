"""Compares the page docs/how-to/run-yaml-files.md with the code, in the names of its blocks."""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

from handrail.cli import main

PAGE = PAGE_FILE.read_text("utf-8")
Path("review.yaml").write_text(re.search(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1])


def typed(line):
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "100"}),
    ):
        code = main(shlex.split(line)[1:])
    return said.getvalue(), code


# ---
assert typed("handrail convert review.yaml -o review.py") == ("", 0)
written = Path("review.py").read_text()
assert written.index("while True:") < written.index("writer = yield from step(f'writer-{n}')"), (
    written
)
assert typed("handrail check review.py review.yaml")[1] == 0
assert "writer  agent → reviewer" in typed("handrail graph review.yaml --format text")[0]
assert "flowchart" in typed("handrail graph review.yaml")[0]
assert "topic" in typed("handrail show review.yaml")[0]
