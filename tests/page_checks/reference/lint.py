"""Compares the page docs/reference/lint.md with the code, in the names of its blocks."""

import re
import textwrap
from pathlib import Path

from handrail.cli.check import agent_mistakes
from handrail.static.lint import CODES
from handrail.static.lint import check_module

PAGE = PAGE_FILE.read_text("utf-8")
HEAD = """
import asyncio, os, random, time
from handrail import Agent, AgentOptions, Steps, step, workflow

@workflow
def other() -> Steps[None]:
    yield from step("x").call(int)

def helper() -> Steps[None]:
    yield from step("y").call(int)

async def something() -> None: ...

"""
sections = dict(re.findall(r"^## (HR\d+): .*?^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
assert sections.keys() == CODES.keys()
for code, wrong in sections.items():
    if "@workflow" not in wrong:
        wrong = "@workflow\ndef wrong() -> Steps[None]:\n" + textwrap.indent(wrong, "    ")
    found = {finding.code for finding in check_module(HEAD + wrong, "wrong.py", agent_mistakes)}
    assert found == {code}, (code, found)
    ignored = wrong.replace("\n", f"  # handrail: ignore[{code}]\n")
    if code != "HR100":
        assert check_module(HEAD + ignored, "wrong.py", agent_mistakes) == (), code
