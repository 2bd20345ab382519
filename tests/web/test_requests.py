"""Requests that stay half sent, and addresses that name another host."""

from __future__ import annotations

import socket

import pytest
from starlette.testclient import TestClient

from handrail import MemoryJournal
from handrail.web import app as page
from handrail.web.app import create_app, open_socket, serve_in_thread

TOKEN = "t" * 24


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/index.html", "/index.html"),
        ("//index.html", "/index.html"),
        ("///page.js", "/"),
        ("//evil.test", "/"),
        ("/%2fevil.example/", "/"),
        ("/\\evil.example/", "/"),
    ],
)
def test_no_address_leads_to_another_host(path: str, to: str) -> None:
    """The token is taken out of an address, and what is left is one of this page."""
    client = TestClient(create_app(MemoryJournal(), token=TOKEN), base_url="http://127.0.0.1")
    got = client.get(f"http://127.0.0.1{path}?token={TOKEN}", follow_redirects=False)
    assert (got.status_code, got.headers["location"]) == (303, to)


def test_a_page_that_leads_here_sets_the_cookie_without_a_redirect() -> None:
    """The browser would send no strict cookie with a redirect that another site began."""
    client = TestClient(create_app(MemoryJournal(), token=TOKEN), base_url="http://127.0.0.1")
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    got = client.get(f"/?token={TOKEN}", headers=headers, follow_redirects=False)
    assert got.status_code == 200
    assert "set-cookie" in got.headers
    assert 'content="0;url=/"' in got.text
    assert TOKEN not in got.text


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        (
            b"POST /api/runs/r/pause HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer tttttttttttttttttttttttt\r\nContent-Length: 20\r\n\r\n{"
        ),
    ],
)
def test_a_request_that_stays_half_sent_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses up no descriptor for ever."""
    monkeypatch.setattr(page, "REQUEST_S", 0.05)
    at = open_socket(0)
    with (
        serve_in_thread(create_app(MemoryJournal(), token=TOKEN), at),
        socket.create_connection(at.getsockname(), timeout=10) as client,
    ):
        client.sendall(sent)
        while client.recv(4096):
            pass
