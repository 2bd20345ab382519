"""A run as one HTML file, which opens from a disk and uses no network.

It is the page itself with the run's data: the file contains script, style sheet and data, and its
security policy allows this script and style, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from handrail.model import events as ev
from handrail.record.state import RecordedRun
from handrail.secrets.masking import Mask
from handrail.typed.jsonsafe import Json
from handrail.web.log import level_of, line_data
from handrail.web.run_json import detail_of
from handrail.web.step_json import step_details
from handrail.web.texts import Texts

FORMAT = 1
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of the details of steps; past it they are left out, those of successful steps first."""
MOST_LINES = 50_000
"""Lines of the log."""
_STATIC = Path(__file__).parent / "static"


def html_of(
    recorded: RecordedRun,
    *,
    made_at: float,
    graph: Json = None,
    texts: Callable[[str], Texts] | None = None,
    mask: Mask | None = None,
) -> str:
    """The report as HTML.

    ``graph``: the workflow's, if known. ``texts``: returns a step's texts. ``mask``: hides secrets.
    """
    hide = _unmasked if mask is None else mask.plain
    run = detail_of(recorded)
    data: dict[str, Json] = {
        "format": FORMAT,
        "made_at": made_at,
        "run": hide(run),
        "graph": hide(graph),
        "log": hide(_log(recorded, mask)),
        "log_left_out": len(recorded.history) - len(_log_events(recorded)),
        "steps": _steps(recorded, run["steps"], texts or (lambda _: Texts()), hide),
    }
    script, style = page_script(), page_style()
    allowed = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = html.escape(f"{recorded.info.workflow_name} {recorded.info.run_id}", quote=False)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="app"></div>\n'
        f'<script type="application/json" id="handrail-data">{_in_html(data)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _steps(
    recorded: RecordedRun, rows: Any, texts: Callable[[str], Texts], hide: Callable[[Json], Json]
) -> dict[str, Json]:
    """The details of each step beyond its row, where there are any, by path."""
    events: dict[str, list[ev.Event]] = {}
    for event in recorded.history:
        events.setdefault(getattr(event, "path", ""), []).append(event)
    known = {row["path"]: row for row in rows}
    found: dict[str, Json] = {}
    left = MOST_BYTES
    # Steps that succeeded or were skipped come last.
    for step in sorted(recorded.view.steps, key=lambda one: one.state in {"succeeded", "skipped"}):
        whole = step_details(step, events.get(step.path, ()), texts(step.path))
        row = known[step.path]
        more = {key: one for key, one in whole.items() if one and one != row.get(key)}
        data = hide(cast("Json", more))
        left -= len(json.dumps(data)) + len(step.path)
        if left < 0:
            break
        found[step.path] = data
    return found


def _log(recorded: RecordedRun, mask: Mask | None) -> Json:
    """The lines of the log; of more than ``MOST_LINES`` the last that are not ``info``."""
    lines = _log_events(recorded)
    return [line_data(line if mask is None else mask.value(line)) for line in lines]


def _log_events(recorded: RecordedRun) -> Sequence[ev.Event]:
    if len(recorded.history) <= MOST_LINES:
        return recorded.history
    return [event for event in recorded.history if level_of(event) != "info"][-MOST_LINES:]


def _unmasked(data: Json) -> Json:
    return data


@cache
def page_script() -> str:
    """The script of the page, escaped for HTML."""
    text = (_STATIC / "app.js").read_text("utf-8")
    return text.replace("</script", r"<\/script").replace("<!--", r"<\!--")


@cache
def page_style() -> str:
    """The style sheet of the page."""
    return (_STATIC / "app.css").read_text("utf-8").replace("</", r"<\/")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _in_html(data: Json) -> str:
    """The data as JSON that neither ends nor begins an HTML element, whatever is in it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
