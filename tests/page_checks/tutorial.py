"""Compares the page docs/tutorial.md with the code, in the names of its blocks."""

test_the_editor_is_told_what_is_wrong()

import re, subprocess, sys

page = PAGE_FILE.read_text()
blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
wanted = [block for block in blocks if "def " in block or "class " in block]
source = "".join(block for block in wanted if "Executor" not in block and "Script" not in block)
source = source.replace(blocks[0][blocks[0].index("@workflow") :], "")
Path("notes.py").write_text(source)


def handrail(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "handrail.cli", *arguments], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


assert handrail("check", "notes.py")[0] == 0, handrail("check", "notes.py")
code, graph, errors = handrail("graph", "notes.py", "--format", "text")
assert code == 0, errors
shown = re.search(
    r"`handrail graph` prints:.*?^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE
)[1]
assert graph.strip() == shown.strip(), graph
