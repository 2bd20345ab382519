"""``python -m bench.peers [--rounds N] [NAME ...]``: ours beside the others, as a Markdown table.

The scripts take turns, each in a process of its own, so that what else the machine does hits all of
them. A cell is the least of the rounds, with their median in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = sorted(path.stem.removesuffix("_steps") for path in HERE.glob("*_steps.py"))
COLUMNS = {
    "memory_us": "in memory, µs a step",
    "durable_us": "recorded in SQLite, µs a step",
    "start_ms": "process start to the end of one step, ms",
}


def lines_of(script: str, *arguments: str) -> list[dict[str, Any]]:
    """What a script printed; nothing, and a note on stderr, if it cannot run here."""
    path = f"{HERE.parents[1] / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    code = [sys.executable, "-W", "ignore", str(HERE / f"{script}_steps.py"), *arguments]
    done = subprocess.run(
        code, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode:
        print(f"{script}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"package"')]


def measured(scripts: list[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """What each column of each row was in each round."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for script in scripts:
            for row in lines_of(script):
                for column in COLUMNS:
                    if row.get(column) is not None:
                        found[title_of(row)][column].append(row[column])
            began = time.perf_counter()
            for row in lines_of(script, "start"):
                found[title_of(row)]["start_ms"].append((time.perf_counter() - began) * 1e3)
    return found


def title_of(row: dict[str, Any]) -> str:
    """The name of a row: the package, its version, and the kind of step."""
    kind = f", {row['of']}" if row["of"] else ""
    return f"{row['package']} {row['version']}{kind}"


def cell(values: list[float]) -> str:
    """The least value, and the median."""
    if not values:
        return "-"
    digits = 1 if min(values) < 20 else 0
    return f"{min(values):.{digits}f} ({median(values):.{digits}f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    parser.add_argument(
        "scripts", nargs="*", metavar="NAME", help=f"only some of {', '.join(SCRIPTS)}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each has its turn")
    given = parser.parse_args()
    cores, load = os.cpu_count(), os.getloadavg()[0]
    found = measured(given.scripts or SCRIPTS, given.rounds)
    print(f"Python {platform.python_version()}, {cores} cores, load {load:.1f} before\n")
    print("| |", " | ".join(COLUMNS.values()), "|")
    print("|---|" + "---|" * len(COLUMNS))
    for title in sorted(found, key=lambda title: (not title.startswith("handrail"), title)):
        print(f"| {title} |", " | ".join(cell(found[title][column]) for column in COLUMNS), "|")


if __name__ == "__main__":
    main()
