"""Compares the page docs/reference/steps.md with the code, in the names of its blocks."""

import inspect
import re
import sys
from pathlib import Path

from handrail import Step, Steps, step, workflow
from handrail.static.chain import MODIFIERS, VERBS
from handrail.steps.step import StepName

page = PAGE_FILE.read_text("utf-8")
rows = re.findall(r"^\| `\.(\w+)\(", page, re.MULTILINE)
assert set(rows) == {*VERBS, *MODIFIERS}, set(rows) ^ {*VERBS, *MODIFIERS}
assert all(hasattr(StepName, verb) for verb in VERBS)
(row,) = re.findall(r"^\| `\.agent\((.*?)\)`", page, re.MULTILINE)
assert re.findall(r"(\w+)=", row) == [
    name for name in inspect.signature(StepName.agent).parameters if name not in ("self", "agent")
]
assert all(hasattr(Step, modifier) for modifier in MODIFIERS)

try:
    step("a").call(int).budget(None)
except TypeError:
    pass
try:
    from handrail import Budget, DefinitionError

    step("a").call(int).budget(Budget(launches=1))
except DefinitionError:
    pass
else:
    raise AssertionError


@workflow
def invalid() -> Steps[str]:
    done = yield from step("a").command(
        [sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'a\xff')"]
    )
    return done.stdout


assert invalid().value == "a\ufffd"
