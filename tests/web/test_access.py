"""Who is let in: a scanner's list of requests, each answered as it must be."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import pytest
from starlette.testclient import TestClient

from handrail import Executor, MemoryJournal, Steps, WrongUse, step, workflow
from handrail.model.events import CancelRequested
from handrail.web import create_app
from handrail.web.app import open_socket, serve_in_thread

TOKEN = "a-token-of-tests"
HOME = "http://127.0.0.1:8484"
JSON = {"content-type": "application/json"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


@workflow
def asks() -> Steps[str]:
    """A question."""
    return (yield from step("merge?").ask("Merge <script>alert(1)</script>?", choices=["a", "b"]))


@pytest.fixture
def journal() -> MemoryJournal:
    """One with a run that waits for an answer."""
    found = MemoryJournal()
    Executor(journal=found).options(run_id="r-1").run_sync(asks)
    return found


@pytest.fixture
def client(journal: MemoryJournal) -> TestClient:
    """A browser that has no token."""
    return TestClient(
        create_app(journal, token=TOKEN),
        base_url=HOME,
        follow_redirects=False,
        raise_server_exceptions=False,
    )


ANSWER = "/api/runs/r-1/answer"
PAUSE = "/api/runs/r-1/pause"
BODY = b'{"path": "merge?", "answer": "a"}'

REFUSED: list[tuple[str, str, str, dict[str, str], bytes | None, set[int]]] = [
    ("no token", "GET", "/api/runs", {}, None, {401}),
    ("no token, the page", "GET", "/", {}, None, {401}),
    ("no token, a file of it", "GET", "/app.js", {}, None, {401}),
    ("no token, to act", "POST", ANSWER, JSON, BODY, {401}),
    ("wrong token", "GET", "/api/runs?token=a-token-of-testz", {}, None, {401}),
    ("the beginning of the token", "GET", f"/api/runs?token={TOKEN[:-1]}", {}, None, {401}),
    ("empty token", "GET", "/api/runs?token=", {}, None, {401}),
    ("wrong bearer", "GET", "/api/runs", {"authorization": "Bearer x"}, None, {401}),
    ("token as basic", "GET", "/api/runs", {"authorization": f"Basic {TOKEN}"}, None, {401}),
    ("token as cookie", "GET", "/api/runs", {"cookie": f"token={TOKEN}"}, None, {401}),
    ("token of the address, to act", "POST", f"{ANSWER}?token={TOKEN}", JSON, BODY, {401}),
    ("a token that is no ASCII", "GET", "/api/runs?token=%ff%00", {}, None, {400, 401}),
    ("other host", "GET", "/api/runs", {**BEARER, "host": "evil.example"}, None, {403}),
    ("host that begins alike", "GET", "/api/runs", {**BEARER, "host": "127.0.0.1.evil"}, None,
     {403}),
    ("host with a user", "GET", "/", {**BEARER, "host": "localhost@evil"}, None, {403}),
    ("host that is none", "GET", "/", {**BEARER, "host": "[::1"}, None, {403}),
    ("host with a path", "GET", "/", {**BEARER, "host": "localhost/evil"}, None, {403}),
    ("other origin", "POST", ANSWER, {**BEARER, **JSON, "origin": "http://evil"}, BODY, {403}),
    ("other port", "POST", ANSWER, {**BEARER, **JSON, "origin": "http://127.0.0.1:1"}, BODY, {403}),
    ("null origin", "POST", ANSWER, {**BEARER, **JSON, "origin": "null"}, BODY, {403}),
    ("origin of a file", "POST", ANSWER, {**BEARER, **JSON, "origin": "file://"}, BODY, {403}),
    ("cross-site read", "GET", "/api/runs", {**BEARER, "origin": "http://evil"}, None, {403}),
    ("cross-site fetch", "GET", "/api/runs",
     {**BEARER, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, None, {403}),
    ("cross-site script", "GET", "/app.js",
     {**BEARER, "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, None, {403}),
    ("form", "POST", ANSWER, {**BEARER, "content-type": "application/x-www-form-urlencoded"},
     b"path=merge%3F&answer=a", {415}),
    ("form of text", "POST", ANSWER, {**BEARER, "content-type": "text/plain"}, BODY, {415}),
    ("form of parts", "POST", ANSWER, {**BEARER, "content-type": "multipart/form-data"}, BODY,
     {415}),
    ("no content type", "POST", ANSWER, BEARER, BODY, {415}),
    ("two content types", "POST", ANSWER,
     {**BEARER, "content-type": "text/plain, application/json"}, BODY, {415}),
    ("huge body", "POST", ANSWER, {**BEARER, **JSON}, b" " * (2**20 + 1), {413}),
    ("body that says it is short", "POST", ANSWER, {**BEARER, **JSON, "content-length": "x"}, BODY,
     {400}),
    ("huge header", "GET", "/api/runs", {**BEARER, "x-a": "a" * 40_000}, None, {431}),
    ("huge address", "GET", f"/api/runs?q={'a' * 9_000}", BEARER, None, {414}),
    ("no JSON", "POST", ANSWER, {**BEARER, **JSON}, b"{path", {400}),
    ("a list", "POST", ANSWER, {**BEARER, **JSON}, b"[]", {400}),
    ("nothing", "POST", ANSWER, {**BEARER, **JSON}, b"", {400}),
    ("nothing, of no type", "POST", ANSWER, BEARER, b"", {400}),
    ("an empty form", "POST", PAUSE,
     {**BEARER, "content-type": "application/x-www-form-urlencoded"}, b"", {415}),
    ("nothing, from elsewhere", "POST", PAUSE, {**BEARER, "origin": "http://evil"}, b"", {403}),
    ("nothing, without a token", "POST", PAUSE, {}, b"", {401}),
    ("nested deeply", "POST", ANSWER, {**BEARER, **JSON},
     b'{"path":"merge?","answer":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {400}),
    ("no text", "POST", ANSWER, {**BEARER, **JSON}, b'{"path":"\xff","answer":1}', {400}),
    ("half a character", "POST", ANSWER, {**BEARER, **JSON},
     rb'{"path":"merge?","answer":"\ud800"}', {400}),
    ("unknown field", "POST", ANSWER, {**BEARER, **JSON},
     b'{"path":"merge?","answer":"a","by":"root"}', {400}),
    ("no answer to it", "POST", ANSWER, {**BEARER, **JSON},
     b'{"path":"merge?","answer":"<script>"}', {400}),
    ("to act by GET", "GET", ANSWER, BEARER, None, {404, 405}),
    ("to act by PUT", "PUT", ANSWER, {**BEARER, **JSON}, BODY, {404, 405}),
    ("other method by a header", "GET", ANSWER, {**BEARER, "x-http-method-override": "POST"}, None,
     {404, 405}),
    ("unknown method", "BREW", "/api/runs", BEARER, None, {405}),
    ("preflight", "OPTIONS", ANSWER, {**BEARER, "origin": "http://evil"}, None, {403}),
    ("a verb that is none", "POST", "/api/runs/r-1/explode", {**BEARER, **JSON}, b"{}", {404, 405}),
    ("path upwards", "GET", "/../../../../etc/passwd", BEARER, None, {404}),
    ("path upwards, encoded", "GET", "/%2e%2e/%2e%2e/etc/passwd", BEARER, None, {404}),
    ("path upwards, twice encoded", "GET", "/%252e%252e%252fetc/passwd", BEARER, None, {404}),
    ("path upwards, of Windows", "GET", "/..%5c..%5cetc%5cpasswd", BEARER, None, {404}),
    ("absolute path", "GET", "//etc/passwd", BEARER, None, {404}),
    ("absolute path, encoded", "GET", "/%2fetc%2fpasswd", BEARER, None, {404}),
    ("null byte", "GET", "/app.js%00.html", BEARER, None, {400}),
    ("line break", "GET", "/api/runs/a%0d%0aset-cookie:x", BEARER, None, {400}),
    ("source of the package", "GET", "/routes.py", BEARER, None, {404}),
    ("run that is a script", "GET", "/api/runs/<script>alert(1)</script>", BEARER, None, {404}),
    ("run that is a path", "GET", "/api/runs/..%2f..%2fetc", BEARER, None, {404}),
    ("step that is a path", "GET", "/api/runs/r-1/step?path=../../../etc/passwd", BEARER, None,
     {404}),
    ("step that is none", "GET", "/api/runs/r-1/step", BEARER, None, {400}),
    ("limit that is none", "GET", "/api/runs?limit=-1", BEARER, None, {400}),
    ("huge limit", "GET", "/api/runs?limit=1000000000", BEARER, None, {400}),
    ("limit in other digits", "GET", "/api/runs?limit=%D9%A3", BEARER, None, {400}),
    ("cursor that is none", "GET", "/api/runs?cursor='--", BEARER, None, {400}),
    ("event that is none", "GET", "/api/runs/r-1/events?after=1e9", BEARER, None, {400}),
]  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED, ids=[one[0] for one in REFUSED])
def test_a_scanner_gets_nothing(
    client: TestClient, journal: MemoryJournal, wrong: tuple[Any, ...]
) -> None:
    """It is refused as JSON, which no browser takes for a page, and nothing came to the run."""
    _, method, target, headers, body, statuses = wrong
    response = client.request(method, target, headers=headers, content=body)
    assert response.status_code in statuses
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "set-cookie" not in response.headers
    assert "access-control-allow-origin" not in response.headers
    assert {"error", "type"} <= response.json().keys()
    assert not journal.letters("r-1", 0)


def test_the_printed_address_sets_a_cookie_that_no_other_site_can_use(client: TestClient) -> None:
    """The token goes from the address into a cookie, which scripts and other sites do not get."""
    response = client.get(f"/?token={TOKEN}&q=x")
    assert response.status_code == 303
    assert response.headers["location"] == "/?q=x"
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    page = client.get("/")
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
    assert client.get("/api/me").json()["by"] is None
    own = {**JSON, "origin": HOME, "sec-fetch-site": "same-origin"}
    assert client.post(ANSWER, content=BODY, headers=own).json()["answer"] == "a"


def test_an_application_says_who_it_is(journal: MemoryJournal) -> None:
    """Its login counts, under the name of any host, and is recorded as who did it."""

    async def authorize(request: Any) -> str | None:
        return request.headers.get("x-user")

    client = TestClient(create_app(journal, authorize=authorize), base_url="https://intra.example")
    assert client.get("/api/runs").status_code == 401
    who = {"x-user": "ana"}
    assert client.get("/api/me", headers=who).json()["by"] == "ana"
    assert client.post(ANSWER, content=BODY, headers={**who, **JSON}).status_code == 200
    second = client.post(ANSWER, content=BODY, headers={"x-user": "ben", **JSON})
    assert second.status_code == 409
    assert (second.json()["type"], second.json()["by"]) == ("GateClosed", "ana")
    reasons = {"": "cancelled by ana", "too dear": "too dear (cancelled by ana)"}
    for reason in reasons:
        body = json.dumps({"reason": reason})
        said = client.post("/api/runs/r-1/cancel", content=body, headers={**who, **JSON})
        assert said.status_code == 200
    sent = [one.event for one in journal.letters("r-1", 0)]
    assert [one.reason for one in sent if isinstance(one, CancelRequested)] == [*reasons.values()]


def test_who_may_only_look_does_nothing(journal: MemoryJournal) -> None:
    """A read-only page refuses each verb, and says so beforehand."""
    app = create_app(journal, token=TOKEN, read_only=True)
    client = TestClient(app, base_url=HOME, headers={**BEARER, **JSON})
    assert client.get("/api/me").json()["verbs"] == []
    response = client.post(ANSWER, content=BODY)
    assert response.status_code == 403
    assert not journal.letters("r-1", 0)


def test_a_page_without_a_lock_is_refused(journal: MemoryJournal) -> None:
    """Neither a token nor a login, or a token that is guessed at once, is an error."""
    with pytest.raises(WrongUse, match=r"token= or authorize="):
        create_app(journal)
    with pytest.raises(WrongUse, match=r"8 characters"):
        create_app(journal, token="abc")


def test_an_id_that_is_a_script_stays_text(journal: MemoryJournal) -> None:
    """What runs say is told as JSON alone, under a policy by which no script in it would run."""
    Executor(journal=journal).options(run_id="<script>x</script>").run_sync(asks)
    client = TestClient(create_app(journal, token=TOKEN), base_url=HOME, headers=BEARER)
    response = client.get("/api/runs/%3Cscript%3Ex%3C%2Fscript%3E")
    assert response.json()["run"]["run_id"] == "<script>x</script>"
    assert response.headers["content-type"] == "application/json"


HEAD = f"host: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n"
POSTED = f"POST {ANSWER} HTTP/1.1\r\n{HEAD}content-type: application/json\r\n"
TEXT = BODY.decode()
RAW = {
    "no host": f"GET /api/runs HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
    "no host, of old": f"GET /api/runs HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
    "two hosts": f"GET /api/runs HTTP/1.1\r\n{HEAD}host: evil\r\n\r\n",
    "another host in front of it": f"GET http://evil/api/runs HTTP/1.1\r\n{HEAD}\r\n",
    "a tunnel": f"CONNECT evil:80 HTTP/1.1\r\n{HEAD}\r\n",
    "all of the server": f"OPTIONS * HTTP/1.1\r\n{HEAD}\r\n",
    "two lengths": f"{POSTED}content-length: {len(TEXT)}\r\ncontent-length: 3\r\n\r\n{TEXT}",
    "less than nothing": f"{POSTED}content-length: -1\r\n\r\n{TEXT}",
    "a length and none": f"{POSTED}content-length: 2\r\n"
    "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a body without an end": f"{POSTED}transfer-encoding: chunked\r\n\r\n"
    + f"10000\r\n{' ' * 65536}\r\n" * 20,
    "a null in a header": f"GET /api/runs HTTP/1.1\r\n{HEAD}x: \0\r\n\r\n",
    "a blank in a name": f"GET /api/runs HTTP/1.1\r\nhost : 127.0.0.1\r\n{HEAD}\r\n",
    "a line of 200 KB": f"GET /{'a' * 200_000} HTTP/1.1\r\n{HEAD}\r\n",
    "another protocol": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a newer protocol": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a proxy that says who asks": "GET /api/runs HTTP/1.1\r\nhost: evil\r\n"
    f"x-forwarded-host: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
}


def test_what_no_browser_sends_is_refused(journal: MemoryJournal) -> None:
    """Each request that is malformed, or made for another server, is answered by a refusal."""
    at = open_socket(0)
    wrong: dict[str, bytes] = {}
    with serve_in_thread(create_app(journal, token=TOKEN), at):
        for name, request in RAW.items():
            with socket.create_connection(at.getsockname(), timeout=5) as line:
                line.sendall(request.encode("latin-1"))
                answer = line.recv(65_536)
            if not re.match(rb"HTTP/1.1 4\d\d ", answer) or b"alert" in answer:
                wrong[name] = answer
    assert wrong == {}
    assert not journal.letters("r-1", 0)
