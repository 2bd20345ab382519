"""``handrail work``, and what is below it."""

from __future__ import annotations

from cyclopts import App

from handrail.cli.work import work
from handrail.cli.work_summary import summary

work_app = App(name="work")
work_app.default(work)
work_app.command(summary)
