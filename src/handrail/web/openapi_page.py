"""The OpenAPI document as a page for people: HTML without a script, and from no other host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

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
