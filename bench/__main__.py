"""``python -m bench [--json FILE] [--rounds N]``: print the table, and write it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from bench import agents, groups, journal, startup, steps
from bench.measure import Row


def line(row: Row) -> str:
    """One row of the table."""
    met = {True: "yes", False: "NO", None: "-"}[row.met]
    limit = "-" if row.limit is None else f"{row.limit:.2f}"
    return (
        f"{row.name:<48} {row.unit_us:>12.2f} {row.baseline_us:>12.2f} "
        f"{row.value:>8.2f} {limit:>7} {met:>4}  {row.note or 'x ' + row.baseline}"
    )


def main() -> int:
    """Measure everything; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--json", type=Path, default=None, help="write the rows there, too")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each measurement")
    given = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'what':<48} {'us':>12} {'baseline us':>12} {'value':>8} {'at most':>7}  met")
    rows: list[Row] = []
    for part in (steps.rows, groups.rows, journal.rows, agents.rows, startup.rows):
        for row in part(given.rounds):
            print(line(row), flush=True)
            rows.append(row)
    if given.json is not None:
        data = [asdict(row) | {"met": row.met} for row in rows]
        given.json.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
