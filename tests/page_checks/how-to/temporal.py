"""Compares the page docs/how-to/temporal.md with the code, in the names of its blocks."""

import inspect
import re
from pathlib import Path

page = PAGE_FILE.read_text("utf-8")
table = page.split("| option of `TemporalExecutor` |")[1].split("\n\n")[0]
named = {
    name
    for line in table.splitlines()
    for name in re.findall(r"`(\w+)`", line.split("|")[1] if "|" in line else "")
}
assert named == set(inspect.signature(TemporalExecutor).parameters) - {"elsewhere"}, named
sentence = page.split("`TemporalWorker` takes ")[1].split(".\n")[0]
assert set(re.findall(r"`(\w+)`", sentence)) == set(inspect.signature(TemporalWorker).parameters), (
    sentence
)
