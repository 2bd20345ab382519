"""The JSON API as an OpenAPI document; the schemas of bodies come from the classes in ``VERBS``.

People are shown the document as HTML without a script, and from no other host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, get_args

import msgspec

from handrail import __version__
from handrail.web.acting import VERBS
from handrail.web.log import ONLY, Level

_TEXT: dict[str, Any] = {"type": "string"}
_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_NUMBER: dict[str, Any] = {"type": "number"}
_WHOLE: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_ANY: dict[str, Any] = {}
_THINGS: dict[str, Any] = {"type": "array", "items": {}}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(required: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The schema of an object; it may have further fields, as later versions add some."""
    return {"type": "object", "required": list(required), "properties": {**required, **more}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _many(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


_STEP_ROW: dict[str, Any] = {
    "path": _TEXT,
    "name": _TEXT,
    "step_type": _TEXT,
    "state": _TEXT,
    "attempts": _WHOLE,
    "started_at": _or_null(_NUMBER),
    "ended_at": _or_null(_NUMBER),
    "duration_ms": _or_null(_NUMBER),
    "error": _or_null(_TEXT),
    "error_type": _or_null(_TEXT),
}
_SCHEMAS: dict[str, Any] = {
    "Error": _object({"error": _TEXT, "type": _TEXT}),
    "Me": _object({
        "version": _TEXT, "read_only": _FLAG, "can_drive": _FLAG,
        "verbs": {"type": "array", "items": _TEXT}, "by": _or_null(_TEXT),
    }),
    "WaitsFor": _object({
        "kind": _TEXT, "path": _TEXT, "what": _TEXT, "whom": _TEXT, "until": _or_null(_NUMBER),
    }),
    "Run": _object({
        "run_id": _TEXT,
        "workflow": _TEXT,
        "state": {"enum": [
            "running", "paused", "suspended", "succeeded", "failed", "cancelled", "dead", "damaged",
        ]},
        "started_at": _NUMBER,
        "updated_at": _NUMBER,
        "duration_ms": _or_null(_NUMBER),
        "events": _WHOLE,
        "labels": {"type": "object", "additionalProperties": _TEXT},
        "waits_for": _many("WaitsFor"),
        "cost_usd": _or_null(_NUMBER),
        "tokens": _or_null(_NUMBER),
        "launches": _or_null(_WHOLE),
        "unread": _or_null(_TEXT),
        "error": _or_null(_TEXT),
        "at_work": {"type": "array", "items": _TEXT},
        "forked_from": _or_null({"type": "array", "items": _or_null(_TEXT)}),
        "holder": _or_null(_object({"pid": _WHOLE, "host": _TEXT})),
    }),
    "Runs": _object({
        "runs": _many("Run"), "next": _or_null(_TEXT), "total": _WHOLE,
        "counts": {"type": "object", "additionalProperties": _WHOLE},
    }),
    "Gate": _object({
        "path": _TEXT, "question": _TEXT, "choices": _THINGS, "schema": _ANY, "default": _ANY,
        "prompts": {"type": "object", "additionalProperties": _TEXT},
        "has_default": _FLAG, "since": _NUMBER, "deadline": _or_null(_NUMBER),
    }),
    "Signal": _object({"name": _TEXT, "path": _TEXT, "schema": _ANY}),
    "StepRow": _object(_STEP_ROW),
    "Act": _object({
        "at": _NUMBER, "action": _TEXT, "path": _TEXT, "value": _TEXT, "by": _or_null(_TEXT),
    }),
    "RunDetail": _object({
        "run": _ref("Run"), "seq": _WHOLE, "inputs": _ANY, "value": _ANY, "error": _or_null(_TEXT),
        "failed_step": _or_null(_TEXT), "gates": _many("Gate"), "signals": _many("Signal"),
        "needs": {"type": "array", "items": _TEXT}, "acts": _many("Act"),
        "drives": {"type": "array", "items": {"type": "array", "items": _or_null(_NUMBER)}},
        "steps": _many("StepRow"),
        "work": _many("Queue"),
    }),
    "Queue": _object({
        "path": _TEXT, "queued": _many("QueuedTask"),
        "queued_count": _WHOLE,
        "running": {"type": "array", "items": _TEXT}, "running_count": _WHOLE,
        "done": _WHOLE, "failed": _WHOLE,
        "refused": {"type": "array", "items": _TEXT}, "refused_count": _WHOLE,
        "why_stopped": _or_null(_TEXT), "over": _FLAG, "unread": _many("QueueEdit"),
    }),
    "QueuedTask": _object({"id": _TEXT, "priority": _NUMBER}),
    "QueueEdit": _object({
        "add": _many("QueuedTask"), "drop": {"type": "array", "items": _TEXT},
        "priority": {"type": "object", "additionalProperties": _NUMBER}, "by": _or_null(_TEXT),
    }),
    "Step": _object({
        **_STEP_ROW, "output": _ANY, "output_cut": _FLAG, "traceback": _or_null(_TEXT),
        "turns": _THINGS, "turns_before": _WHOLE, "text": _TEXT, "reasoning": _TEXT,
        "activity": _TEXT, "stdout": _TEXT, "stderr": _TEXT, "tries": _THINGS,
        "incidents": _THINGS, "session": _or_null(_TEXT), "backend": _or_null(_TEXT),
        "model": _or_null(_TEXT), "answer": _ANY,
    }),
    "Log": _object({
        "start": _WHOLE, "total": _WHOLE, "at": _or_null(_WHOLE),
        "counts": _object({"errors": _WHOLE, "warnings": _WHOLE, "people": _WHOLE}),
        "lines": _many("LogLine"),
    }),
    "LogLine": _object({
        "seq": _WHOLE, "at": _NUMBER, "type": _TEXT, "path": _TEXT,
        "level": {"enum": list(get_args(Level))}, "text": _TEXT,
    }),
    "Event": _object({"type": _TEXT, "run_id": _TEXT, "seq": _WHOLE, "at": _NUMBER}),
    "Graph": _object({"graph": _or_null(_object({"nodes": _THINGS, "edges": _THINGS}))}),
    "Diff": _object({
        "a": _TEXT, "b": _TEXT, "same": _FLAG, "fields": {"type": "array", "items": _TEXT},
        "steps": _THINGS,
    }),
    "Done": _object({"ok": _FLAG, "driven": _FLAG}, run_id=_TEXT, answer=_ANY, plan=_ANY),
}  # fmt: skip
_EVENTS = (
    "Server-sent events. `record`: an event of the run, with `type`, `seq`, `at` (unix seconds), "
    "its other fields, and as `step` the row of the step that it changed. It has a number (`id`); "
    "send that as Last-Event-ID to continue after it. `run`: the run's row, when it has changed. "
    "`progress`: a piece of text, with `path` and `kind`, and its `start` and `end` in bytes of "
    "the whole text. `reset`: load the run again. `beat`: sent every 10 s, without data."
)


def _parameter(name: str, schema: Mapping[str, Any], said: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": said, **more}


_RUN_ID = {
    "name": "run_id", "in": "path", "required": True,
    "schema": {"type": "string", "pattern": "^[^\\u0000-\\u001f\\u007f]+$", "maxLength": 1000},
}  # fmt: skip


def _answers(content: Mapping[str, Any], *codes: int) -> dict[str, Any]:
    said = {
        400: "The request is invalid",
        401: "The token is missing or wrong",
        403: "Not allowed: the page is read-only, or another site or host asks",
        404: "There is no such run, step or question",
        409: "The run cannot take it now; for an answered question: by whom, when, and the answer",
        413: "Too large",
        415: "Not JSON",
        503: "The journal cannot be read, or the run's record is damaged",
    }
    problem = {"application/json": {"schema": _ref("Error")}}
    found = {str(code): {"description": said[code], "content": problem}
             for code in (400, 401, 403, 503, *codes)}  # fmt: skip
    return {"200": {"description": "Done", "content": dict(content)}, **found}


def _get(summary: str, schema: str, *codes: int, parameters: Any = ()) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref(schema)}}
    return {"get": {
        "summary": summary, "parameters": list(parameters), "responses": _answers(content, *codes),
    }}  # fmt: skip


def _sse(summary: str, parameters: Any, *codes: int) -> dict[str, Any]:
    content = {"text/event-stream": {"schema": _TEXT}}
    return {"get": {
        "summary": summary, "description": _EVENTS, "parameters": list(parameters),
        "responses": _answers(content, *codes),
    }}  # fmt: skip


def document(root: str = "") -> dict[str, Any]:
    """The whole document, of an application that is mounted at ``root``."""
    bodies, parts = msgspec.json.schema_components(
        [verb.body for verb in VERBS.values()], ref_template="#/components/schemas/{name}"
    )
    one = "/api/runs/{run_id}"
    limit = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    paths: dict[str, Any] = {
        "/api/me": _get("The user, and what the user may do", "Me"),
        "/api/runs": _get("Runs, the newest first", "Runs", parameters=[
            _parameter("q", _TEXT, "Words that are all in the id, workflow, labels or waits"),
            _parameter("state", _TEXT, "The run's state"),
            _parameter("workflow", _TEXT, "The name of the run's workflow"),
            _parameter("limit", limit, "At most this many"),
            _parameter("cursor", _TEXT, "`next` of the previous page"),
        ]),
        "/api/events": _sse("The rows of runs as they change", []),
        "/api/diff": _get("Two runs, step by step", "Diff", 404, parameters=[
            _parameter("a", _NAME, "A run", required=True),
            _parameter("b", _NAME, "Another one", required=True),
        ]),
        one: _get("A run: its steps, what it waits for, its end", "RunDetail", 404, parameters=[
            _RUN_ID, _parameter("steps", _FLAG, "false: without the rows of its steps"),
        ]),
        f"{one}/step": _get("One step in full", "Step", 404, parameters=[
            _RUN_ID, _parameter("path", _TEXT, "The step's path", required=True),
        ]),
        f"{one}/log": _get("A run's record as text: the last lines, or a part", "Log",
                           404, parameters=[
            _RUN_ID,
            _parameter("q", _TEXT, "Words that must all be in a line's kind, path or text"),
            _parameter("only", {"enum": list(ONLY)},
                       "errors; warnings: these and errors; people: their actions, and questions"),
            _parameter("start", {"type": "integer", "minimum": 0, "maximum": 2**53},
                       "From this position on, among the lines that match"),
            _parameter("line", {"type": "integer", "minimum": 1, "maximum": 2**53},
                       "Around the event with this number; not together with `start`"),
            _parameter("limit", {**limit, "default": 200}, "At most this many lines"),
        ]),
        f"{one}/event": _get("One recorded event; a very long one without its values",
                             "Event", 404, parameters=[
            _RUN_ID,
            _parameter("number", {"type": "integer", "minimum": 1, "maximum": 2**53},
                       "Its number", required=True),
        ]),
        f"{one}/record": {"get": {
            "summary": "All events of a run, one JSON object per line",
            "parameters": [_RUN_ID],
            "responses": _answers({"application/x-ndjson": {"schema": _TEXT}}, 404),
        }},
        f"{one}/graph": _get("The graph of its workflow; null if its source is not known",
                             "Graph", 404, parameters=[_RUN_ID]),
        f"{one}/events": _sse("A run's events as they happen", [
            _RUN_ID,
            _parameter("after", {"type": "integer", "minimum": 0, "maximum": 2**53},
                       "Only events after this number"),
            _parameter("step", _TEXT, "`progress` of this step only"),
            _parameter("rows", _FLAG, "true: of a `record` only its kind and the row of its step"),
        ], 404),
    }  # fmt: skip
    done = {"application/json": {"schema": _ref("Done")}}
    for (name, verb), body in zip(VERBS.items(), bodies, strict=True):
        needed = any(field.required for field in msgspec.structs.fields(verb.body))
        paths[f"{one}/{name}"] = {"post": {
            "summary": verb.summary,
            "parameters": [_RUN_ID],
            "requestBody": {"required": needed, "content": {"application/json": {"schema": body}}},
            "responses": _answers(done, 404, 409, 413, 415),
        }}  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "handrail", "version": __version__},
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**_SCHEMAS, **parts},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


# -- the page for people ---------------------------------------------------------------------------

_HEAD = (
    '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>The API of handrail</title>\n'
)


def openapi_page(document: Mapping[str, Any]) -> str:
    """A page with each request of the document, and the schemas of what is sent and received."""
    info = document["info"]
    lines = [
        f"{_HEAD}<h1>The API of {escape(info['title'])} {escape(info['version'])}</h1>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += _request(f"{method.upper()} {path}", operation)
    lines.append("<h1>Schemas</h1>")
    for name, schema in document["components"]["schemas"].items():
        lines.append(f'<h2 id="{escape(name)}">{escape(name)}</h2>{_json(schema)}')
    return "\n".join([*lines, "</html>\n"])


def _request(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(title)}</code></h2><p>{escape(operation['summary'])}.</p>"
    if "description" in operation:
        yield f"<p>{escape(operation['description'])}</p>"
    yield "<ul>"
    for one in operation["parameters"]:
        required = ", required" if one.get("required") else ""
        said = f": {escape(one['description'])}" if "description" in one else ""
        yield f"<li><code>{escape(one['name'])}</code> (in the {one['in']}{required}){said}</li>"
    body = operation.get("requestBody")
    if body is not None:
        optional = "" if body["required"] else " (optional)"
        yield f"<li>body{optional}: {_content(body)}</li>"
    for status, response in operation["responses"].items():
        yield f"<li>{status}, {escape(response['description'])}: {_content(response)}</li>"
    yield "</ul>"


def _content(holder: Mapping[str, Any]) -> str:
    """The media type, and the name of the schema as a link."""
    ((kind, content),) = holder["content"].items()
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    link = f' <a href="#{escape(name)}">{escape(name)}</a>' if name else ""
    return f"{escape(kind)}{link}"


def _json(schema: Any) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
