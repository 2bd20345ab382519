"""The names of fields in handrail's own records, by what such a field holds: in one place for all.

A field of one name holds the same kind of thing in every record. A new one is added here, too: to
``TERMS``, ``NAMES`` or ``TEXTS`` if there can be text in it.
"""

from __future__ import annotations

TERMS = frozenset({
    *("run_id", "step_type", "status", "kind", "on_error", "error_type", "error_bases", "composed"),
    *("fingerprint", "digest", "stream", "direction", "decision", "phase", "rung", "form"),
    *("action", "backend", "cost_source", "type", "accepts"),
})  # fmt: skip
"""Handrail's own terms: no secret is masked in them."""
NAMES = frozenset({
    *("path", "result_path", "name", "key", "workflow_name", "failed_step", "signal", "signals"),
    *("superseded", "reused", "rerun", "scope", "tool", "orphaned", "left_out", "waiting_signals"),
    *("cause", "overdue", "forked_from", "order", "drop", "found"),
})  # fmt: skip
"""Names that authors chose: only long secrets are masked in them, and none in a record: a resume
needs the names.
"""
TEXTS = frozenset({
    *("error", "traceback", "reason", "problem", "why", "why_stopped", "notes", "hint", "question"),
    *("by", "given_by", "said_by", "holder", "whom", "what", "sink", "parent", "id", "branch"),
    *("answer", "prompt", "prompt_for", "text", "line", "said", "guidance", "stdout", "stderr"),
    *("model", "session", "window", "files", "files_changed"),
    *("inputs", "input", "output", "payload", "value", "values", "final_output", "data", "default"),
    *("choices", "labels", "priority"),
})  # fmt: skip
"""What may be any text or value: secrets are masked in it."""

TIMES = frozenset({
    *("duration_ms", "total_duration_ms", "duration_s"),
    *("at", "started_at", "ended_at", "due", "since", "deadline"),
})  # fmt: skip
"""Times: they differ in every run."""
OF_ITS_RUN = TIMES | {"replayed", "run_id", "session", "session_usage"}
"""What two runs of the same workflow never share."""
USER_VALUES = frozenset({
    "add", "input", "inputs", "line", "output", "payload", "prompt", "round", "tasks", "traceback",
    "value",
})  # fmt: skip
"""What may be large or secret, and is no entry of a log."""
FOR_A_REPLAY = frozenset({
    "accepts", "agents_may_answer", "cleanup", "composed", "digest", "error_bases", "fingerprint",
    "found", "index", "left_out", "letter", "once", "order", "rollback", "took",
})  # fmt: skip
"""What only a replay needs."""
