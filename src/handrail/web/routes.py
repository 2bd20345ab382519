"""The page over HTTP: what each address answers. No name in a request is looked up on a disk."""

# pyright: basic, reportMissingImports=false
# Whoever works on another part need not have the extra: mypy checks this where it is installed.
from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from handrail import __version__
from handrail.errors import HandrailError
from handrail.ports.journal import RunInfo
from handrail.record.status import shown_status
from handrail.typed.jsonsafe import Json
from handrail.web.access import (
    HEADERS,
    MOST_BODY,
    Access,
    Head,
    Refusal,
    body_refusal,
    too_large,
)
from handrail.web.acting import (
    VERBS,
    Acting,
    BadRequest,
    NotAllowed,
    PageError,
    body_of,
    problem_of,
)
from handrail.web.graph_json import graph_of
from handrail.web.log import MOST_LINES, ONLY, LogFilter, LogQuery
from handrail.web.openapi import document, openapi_page
from handrail.web.reading import Reader
from handrail.web.stream import StreamRequest, list_events, run_events

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STATIC = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_MOST_RUNS = 1_000

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """The page of one journal."""

    reader: Reader
    acting: Acting
    access: Access
    authorize: Callable[[Request], Any] | None
    read_only: bool
    by: str | None

    def app(self) -> Starlette:
        """The page as an application."""
        one = "/api/runs/{run_id:path}"
        routes = [
            Route("/api/me", self._me),
            Route("/api/openapi.json", self._openapi),
            Route("/api/docs", self._openapi_page),
            Route("/api/runs", self._runs),
            Route("/api/events", self._list_events),
            Route("/api/diff", self._diff),
            Route(f"{one}/events", self._events),
            Route(f"{one}/log", self._log),
            Route(f"{one}/event", self._event),
            Route(f"{one}/record", self._record),
            Route(f"{one}/graph", self._graph),
            Route(f"{one}/step", self._step),
            *(Route(f"{one}/{verb}", self._act(verb), methods=["POST"]) for verb in VERBS),
            Route(one, self._run),
            Route("/{name}", self._file),
            Route("/", self._file),
        ]
        handlers: dict[Any, Any] = {
            HandrailError: _problem,
            PageError: _problem,
            HTTPException: _http_problem,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.add_middleware(_AccessMiddleware, page=self)
        return app

    # -- runs --------------------------------------------------------------------------------------

    async def _me(self, request: Request) -> Response:
        return _json(
            {
                "version": __version__,
                "read_only": self.read_only,
                "can_drive": self.acting.can_drive and not self.read_only,
                "verbs": [] if self.read_only else sorted(VERBS),
                "by": request.state.by,
            }
        )

    async def _openapi(self, request: Request) -> Response:
        return _json(document(request.scope.get("root_path", "")))

    async def _openapi_page(self, request: Request) -> Response:
        return HTMLResponse(openapi_page(document(request.scope.get("root_path", ""))))

    async def _runs(self, request: Request) -> Response:
        query = _query(request, {"q", "state", "workflow", "limit", "cursor"})
        limit = _number("limit", query.get("limit", "100"), 1, _MOST_RUNS)
        infos = list(reversed(await self.reader.listed()))
        counts: dict[str, Json] = {}
        for info in infos:
            state = shown_status(info)
            counts[state] = int(str(counts.get(state, 0))) + 1
        found = [info for info in infos if _matches(info, query)]
        start = 0
        if query.get("cursor"):
            places = {info.run_id: place for place, info in enumerate(found)}
            if query["cursor"] not in places:
                raise BadRequest(f"cursor: run {query['cursor']!r} is not in this list")
            start = places[query["cursor"]] + 1
        shown = found[start : start + limit]
        return _json(
            {
                "runs": await self.reader.rows(shown),
                "next": shown[-1].run_id if start + limit < len(found) else None,
                "total": len(found),
                "counts": counts,
            }
        )

    async def _run(self, request: Request) -> Response:
        query = _query(request, {"steps"})
        steps = _flag("steps", query.get("steps", "true"))
        return _json(await self.reader.detail(_run_id(request), steps=steps))

    async def _step(self, request: Request) -> Response:
        run_id = _run_id(request)
        path = _query(request, {"path"}).get("path")
        if path is None:
            raise BadRequest("the step is missing: add ?path=STEP")
        found = await self.reader.step(run_id, path)
        if found is None:
            raise HTTPException(404, f"run {run_id!r} has no step at {path!r}")
        return _json(found)

    async def _log(self, request: Request) -> Response:
        query = _query(request, {"q", "only", "start", "line", "limit"})
        only = query.get("only", "")
        if only not in ONLY:
            raise BadRequest(f"only: expected {', '.join(filter(None, ONLY))}, got {only[:40]!r}")
        if "start" in query and "line" in query:
            raise BadRequest("give either start or line, not both")
        sought = LogQuery(tuple(query.get("q", "").lower().split()), cast("LogFilter", only))
        found = await self.reader.log(
            _run_id(request),
            sought,
            start=_number("start", query["start"], 0, 2**53) if "start" in query else None,
            line=_number("line", query["line"], 1, 2**53) if "line" in query else None,
            limit=_number("limit", query.get("limit", "200"), 1, MOST_LINES),
        )
        return _json(found)

    async def _event(self, request: Request) -> Response:
        run_id, query = _run_id(request), _query(request, {"number"})
        number = _number("number", query.get("number", ""), 1, 2**53)
        found = await self.reader.event(run_id, number)
        if found is None:
            raise HTTPException(404, f"run {run_id!r} has no event {number}")
        return _json(found)

    async def _record(self, request: Request) -> Response:
        _query(request, set())
        run_id = _run_id(request)
        await self.reader.snapshot(run_id)  # so that an error becomes an HTTP status
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(run_id, safe='')}.jsonl"
        }
        lines = self.reader.record(run_id)
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    async def _graph(self, request: Request) -> Response:
        info = await self.reader.info(_run_id(request), now=True)
        code = self.acting.code_of(info)
        graph = None if code is None else graph_of(code)
        return _json({"graph": self.reader.mask_data(graph)})

    async def _diff(self, request: Request) -> Response:
        query = _query(request, {"a", "b"})
        if not query.get("a") or not query.get("b"):
            raise BadRequest("the runs are missing: add ?a=RUN&b=RUN")
        for name in ("a", "b"):
            await self.reader.info(query[name], now=True)
        found = await self.acting.diff(query["a"], query["b"])
        return _json(self.reader.mask_data(found))

    # -- streams -----------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        run_id = _run_id(request)
        query = _query(request, {"after", "step", "rows"})
        last = request.headers.get("last-event-id") or query.get("after", "0")
        asked = StreamRequest(
            _number("after", last, 0, 2**53),
            query.get("step"),
            rows=_flag("rows", query.get("rows", "false")),
        )
        await self.reader.snapshot(run_id, now=True)  # so that an error becomes an HTTP status
        return _stream(run_events(self.reader, run_id, asked))

    async def _list_events(self, request: Request) -> Response:
        del request
        await self.reader.runs()
        return _stream(list_events(self.reader))

    # -- actions -----------------------------------------------------------------------------------

    def _act(self, verb: str) -> Answer:
        async def act(request: Request) -> Response:
            refusal = body_refusal(_head_of(request))
            if refusal is not None:
                return _refusal(refusal)
            if self.read_only:
                raise NotAllowed("this page only shows runs: it is read-only")
            body = body_of(verb, await _body(request))
            info = await self.reader.info(_run_id(request), now=True)
            try:
                found = await self.acting.do(info, verb, body, request.state.by)
            except (ValueError, RecursionError) as error:
                if isinstance(error, (HandrailError, PageError)):
                    raise
                raise BadRequest(f"{verb}: {error}") from None
            return _json(self.reader.mask_data(found))

        return act

    # -- the page itself ---------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        found = _files().get(name)
        if found is None:
            raise HTTPException(404, "there is nothing here")
        return Response(found[1], media_type=found[0])

    # -- access ------------------------------------------------------------------------------------

    async def is_admitted(self, request: Request, head: Head) -> bool:
        """True if the request may pass; then ``request.state.by`` is its user."""
        request.state.by = self.by
        if self.authorize is not None:
            who = self.authorize(request)
            if inspect.isawaitable(who):
                who = await who
            if who is not None:
                request.state.by = str(who)
                return True
        return self.access.is_known(head)


class _AccessMiddleware:
    """Refuses requests that ``Access`` refuses, and adds ``HEADERS`` to every response."""

    def __init__(self, app: ASGIApp, page: Page) -> None:
        self._app = app
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                more = [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in known
                ]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        response = await self._check_access(scope, receive)
        await (response or self._app)(scope, receive, with_headers)

    async def _check_access(self, scope: Scope, receive: Receive) -> Response | None:
        request, access = Request(scope, receive), self._page.access
        head = _head_of(request)
        refusal = access.refusal(head)
        if refusal is None and not await self._page.is_admitted(request, head):
            refusal = Refusal(401, "open the address that `handrail ui` printed: it has the token")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if refusal is not None:
            return _refusal(refusal)
        if head.query_token and not path.startswith("/api"):
            return self._with_cookie(request, path)
        return None

    def _with_cookie(self, request: Request, path: str) -> Response:
        """A redirect to the same address without the token, which sets the cookie instead."""
        access, root = self._page.access, request.scope.get("root_path", "")
        left = [
            (name, value) for name, value in request.query_params.multi_items() if name != "token"
        ]
        name = path.lstrip("/")  # an address that begins with // names a host
        known = f"/{name}" if name in _files() else "/"
        to = f"{root}{known}" + (f"?{urlencode(left)}" if left else "")
        response: Response = RedirectResponse(to, 303)
        if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
            # A redirect would still count as the other site's, and get no strict cookie.
            response = HTMLResponse(f'<meta http-equiv="refresh" content="0;url={escape(to)}">')
        if access.token is not None:
            response.set_cookie(
                access.cookie,
                access.cookie_value,
                path=f"{root}/",
                secure=request.url.scheme == "https",
                httponly=True,
                samesite="strict",
            )
        return response


@cache
def _files() -> Mapping[str, tuple[str, bytes]]:
    """The files of the front end by name: their media types and contents."""
    return {
        file.name: (_KINDS[file.suffix], file.read_bytes())
        for file in sorted(_STATIC.iterdir())
        if file.suffix in _KINDS
    }


# -- requests --------------------------------------------------------------------------------------


def _head_of(request: Request) -> Head:
    scope = request.scope
    return Head(
        request.method,
        f"{scope['path']}?{scope['query_string'].decode('latin-1')}",
        tuple(
            (key.decode("latin-1").lower(), value.decode("latin-1"))
            for key, value in scope["headers"]
        ),
        request.query_params.get("token", ""),
        request.cookies,
    )


def _run_id(request: Request) -> str:
    return str(request.path_params["run_id"])


def _query(request: Request, known: set[str]) -> dict[str, str]:
    given = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    query = dict(given)
    unknown = sorted(query.keys() - known)
    if unknown:
        raise BadRequest(f"unknown parameter {unknown[0]!r}; known: {', '.join(sorted(known))}")
    if len(given) > len(query):
        raise BadRequest("a parameter is given more than once")
    return query


def _number(name: str, text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise BadRequest(f"{name}: expected a number from {least} to {most}, got {text[:40]!r}")


def _flag(name: str, text: str) -> bool:
    if text in {"true", "false"}:
        return text == "true"
    raise BadRequest(f"{name}: expected true or false, got {text[:40]!r}")


def _matches(info: RunInfo, query: Mapping[str, str]) -> bool:
    if query.get("state", "") not in {"", shown_status(info)}:
        return False
    if query.get("workflow", "") not in {"", info.workflow_name}:
        return False
    words = query.get("q", "").lower().split()
    labels = map("=".join, info.labels.items())
    waits = (f"{wait.path} {wait.what}" for wait in info.waits_for)
    known = (info.run_id, info.workflow_name, shown_status(info), *labels, *waits)
    text = " ".join(known).lower()
    return all(word in text for word in words)


async def _body(request: Request) -> bytes:
    """The posted body, at most ``MOST_BODY`` bytes."""
    found = bytearray()
    try:
        async for piece in request.stream():
            found += piece
            if len(found) > MOST_BODY:
                raise HTTPException(413, too_large().text)
    except ClientDisconnect:
        raise BadRequest("the body ended early") from None
    return bytes(found)


# -- responses -------------------------------------------------------------------------------------


def _json(data: Any, status: int = 200) -> Response:
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def _stream(events: AsyncIterator[bytes]) -> Response:
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _refusal(refusal: Refusal) -> Response:
    headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else None
    response = _json({"error": refusal.text, "type": refusal.kind}, refusal.status)
    response.headers.update(headers or {})
    return response


async def _problem(request: Request, error: Exception) -> Response:
    del request
    status, data = problem_of(error)
    return _json(data, status)


async def _http_problem(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    names = {404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge"}
    data = {"error": error.detail, "type": names.get(error.status_code, "BadRequest")}
    response = _json(data, error.status_code)
    response.headers.update(error.headers or {})
    return response
