"""Access to the page: its token, the host that a request names, the site that sends the request.

This module decides all of it from a request's head, before other code looks at the request. A page
of another site can make a browser send requests here. So the token is in a cookie that the browser
does not add to those. A request that names another site as its origin is refused besides. So is a
request to an unexpected host, because another site's name may resolve to this address.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping
from dataclasses import field
from urllib.parse import urlsplit

from handrail.errors import WrongUse
from handrail.model.dataclass import dataclass

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MOST_HEAD = 32 * 1024
"""Bytes of all headers together."""
MOST_BODY = 1024 * 1024
"""Bytes of a posted body."""
MOST_TARGET = 8 * 1024
"""Bytes of a path with its query."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request; names of headers are in lower case."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    query_token: str = ""
    cookies: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, name: str) -> str | None:
        """A header's value; "" if it is repeated, which no browser does with the headers here."""
        found = [value for key, value in self.headers if key == name]
        return None if not found else found[0] if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: an HTTP status, a sentence, and the kind of error."""

    status: int
    text: str
    kind: str = "NotAllowed"


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of one page. ``hosts``: the host names that requests may use; None: any.

    Raises:
        WrongUse: the token is too short to be one.
    """

    token: str | None
    hosts: Collection[str] | None = LOOPBACK

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < 8:
            raise WrongUse(
                "the token of a page must have 8 characters or more; secrets.token_urlsafe() makes "
                "a good one"
            )

    # -- the token ---------------------------------------------------------------------------------

    @property
    def cookie(self) -> str:
        """The name of the cookie: each token has its own.

        Pages on several ports of one host share their cookies.
        """
        return f"handrail_{self._derive('name')[:12]}"

    @property
    def cookie_value(self) -> str:
        """The cookie's value, from which the token cannot be derived."""
        return self._derive("value")

    def _derive(self, what: str) -> str:
        key = (self.token or "").encode("utf-8", "surrogatepass")
        return hmac.new(key, f"handrail {what}".encode(), hashlib.sha256).hexdigest()

    def is_known(self, head: Head) -> bool:
        """True if the request has the token: in its query, as a bearer, or in the cookie."""
        if self.token is None:
            return False
        word, _, bearer = (head.of("authorization") or "").partition(" ")
        if head.method in {"GET", "HEAD"} and _is_equal(head.query_token, self.token):
            return True
        if word.lower() == "bearer" and _is_equal(bearer.strip(), self.token):
            return True
        return _is_equal(head.cookies.get(self.cookie, ""), self.cookie_value)

    # -- the request -------------------------------------------------------------------------------

    def refusal(self, head: Head) -> Refusal | None:
        """Why a request is refused, even with the token; None if it is not."""
        size = sum(len(name) + len(value) for name, value in head.headers)
        if size > MOST_HEAD:
            return Refusal(431, f"the headers are longer than {MOST_HEAD} bytes", "TooLarge")
        if len(head.target) > MOST_TARGET:
            return Refusal(414, f"the address is longer than {MOST_TARGET} bytes", "TooLarge")
        if any(ord(char) < 32 or ord(char) == 127 for char in head.target):
            return Refusal(400, "the address has control characters in it", "BadRequest")
        host = head.of("host") or ""
        if not self._allows_host(host):
            names = " or ".join(sorted(self.hosts or ()))
            return Refusal(403, f"this page does not serve host {host[:80]!r}, only {names}")
        if not _is_same_site(head, host):
            return Refusal(403, "requests from another site are refused")
        return None

    def _allows_host(self, host: str) -> bool:
        name = _name_of(host)
        return bool(name) and (self.hosts is None or name in self.hosts)


def _is_same_site(head: Head, host: str) -> bool:
    """False if the request says that a page of another site makes it."""
    origin = head.of("origin")
    if origin is not None:
        try:
            found = urlsplit(origin)
        except ValueError:
            return False
        if found.scheme not in {"http", "https"} or found.netloc.lower() != host.lower():
            return False
    site = head.of("sec-fetch-site")
    if site in {None, "same-origin", "none"}:
        return True
    # A link from elsewhere may lead to the page; it sees nothing there without its cookie.
    return head.method in {"GET", "HEAD"} and head.of("sec-fetch-mode") == "navigate"


def body_refusal(head: Head) -> Refusal | None:
    """Why a posted body is not read, or None. A form of another site cannot post JSON; it does send
    a content type, even if it is empty. So without one, a request without a body is let through.
    """
    if _has_no_body(head):
        return None
    kind = (head.of("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return Refusal(415, "the body must be application/json", "BadRequest")
    length = head.of("content-length")
    if length is not None and not (length.isascii() and length.isdigit()):
        return Refusal(400, "the content-length is not a number", "BadRequest")
    if length is not None and int(length[:20]) > MOST_BODY:
        return too_large()
    return None


def _has_no_body(head: Head) -> bool:
    kind, length = head.of("content-type"), head.of("content-length")
    return kind is None and head.of("transfer-encoding") is None and length in {None, "0"}


def too_large() -> Refusal:
    """The refusal of a body that is longer than ``MOST_BODY``."""
    return Refusal(413, f"the body is longer than {MOST_BODY} bytes", "TooLarge")


def _name_of(host: str) -> str:
    """The name in ``name:port``; empty if the host has another form."""
    try:
        found = urlsplit(f"//{host}")
        _ = found.port
    except ValueError:
        return ""
    plain = found.netloc == host and found.username is None and not set(host) & set("/?#@\\ ")
    return (found.hostname or "") if plain else ""


def _is_equal(one: str, other: str) -> bool:
    left, right = (text.encode("utf-8", "surrogatepass") for text in (one, other))
    return hmac.compare_digest(left, right)
