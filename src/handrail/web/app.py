"""``create_app``: the page, and its JSON API, as an ASGI application."""

# pyright: basic, reportMissingImports=false
# Whoever works on another part need not have the extra: mypy checks this where it is installed.
from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.errors import MissingExtra, WrongUse
from handrail.executor import Executor
from handrail.ports.journal import Journal
from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, secret_values
from handrail.web.access import LOOPBACK, Access
from handrail.web.acting import Acting
from handrail.web.reading import Reader

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

    Authorize: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]


def create_app(
    journal: Journal,
    *,
    token: str | None = None,
    read_only: bool = False,
    executor: Executor | None = None,
    authorize: Authorize | None = None,
    hosts: Collection[str] | None = None,
    artifacts: str | os.PathLike[str] | None = None,
) -> Starlette:
    """The page of a journal's runs, to be served by itself or mounted in an application.

    ``token`` admits requests that have it: as ``?token=`` in the address, which sets a cookie, or
    as a bearer token. ``authorize`` is an application's own login: it takes the request, and
    returns the user's name (recorded with their actions), or None to refuse the request; it may be
    async. At least one of the two must be given; if both are, a request needs only one.

    ``executor`` drives runs that are resumed from the page, and has their workflows.
    ``read_only``: the page only shows runs. ``hosts``: the host names that requests may use, by
    default those of this machine alone, or any if ``authorize`` is given. ``artifacts``: the folder
    of an ``ArtifactsSink``, from which the page reads prompts, and agents' texts as they grow.

    Raises:
        WrongUse: neither token nor authorize is given, or the token is too short.
        MissingExtra: starlette is not installed.
    """
    if token is None and authorize is None:
        raise WrongUse(
            "create_app needs token= or authorize=: whoever reaches the page sees all that its "
            "runs did, and can act on them. secrets.token_urlsafe() makes a token."
        )
    allowed = hosts if hosts is not None else None if authorize is not None else LOOPBACK
    policy = Secrets() if executor is None else executor.parts.secrets
    reader = Reader(
        journal,
        Mask(secret_values(policy, os.environ)),
        None if artifacts is None else Path(artifacts),
    )
    return app_of(
        reader,
        Acting(journal, executor),
        Access(token, allowed),
        authorize=authorize,
        read_only=read_only,
    )


def app_of(
    reader: Reader,
    acting: Acting,
    access: Access,
    *,
    authorize: Any = None,
    read_only: bool = False,
    by: str | None = None,
) -> Starlette:
    """The page as an application, made of its parts; ``by``: the user who has the token.

    Raises:
        MissingExtra: starlette is not installed.
    """
    try:
        from handrail.web.routes import Page
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "starlette":
            raise
        raise MissingExtra("The page", "starlette", "web") from error
    return Page(reader, acting, access, authorize, read_only, by).app()


HOST = "127.0.0.1"


def open_socket(port: int) -> socket.socket:
    """A listening socket for this machine alone; port 0 takes a free one.

    Raises:
        OSError: the port is taken, or invalid.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen(128)
    except OverflowError:
        found.close()
        raise OSError(f"{port} is no port") from None
    except BaseException:
        found.close()
        raise
    return found


def serve(app: Any, at: socket.socket) -> None:
    """Serve an application until a signal ends it.

    Raises:
        MissingExtra: uvicorn is not installed.
    """
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        _server(app).run(sockets=[at])


@contextlib.contextmanager
def serve_in_thread(app: Any, at: socket.socket) -> Generator[None]:
    """Serve an application in a thread of its own while this context is entered.

    Raises:
        MissingExtra: uvicorn is not installed.
    """
    server = _server(app)
    thread = threading.Thread(target=server.run, args=([at],), daemon=True, name="handrail page")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=3)
        at.close()


REQUEST_S = 10.0
"""How long a connection may take to send a whole request; at most twice as long."""


def _server(app: Any) -> Any:
    try:
        import h11
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError as error:
        raise MissingExtra("The page", "uvicorn", "web") from error

    class Protocol(H11Protocol):
        """Closes a connection whose request stays half sent."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._look_again(None)

        def _look_again(self, waited_for: object) -> None:
            waits = self.conn.their_state in {h11.IDLE, h11.SEND_BODY}
            known: Any = self.cycle
            cycle = (known or self.conn) if waits else None
            if cycle is not None and cycle is waited_for:
                self.transport.close()
            if not self.transport.is_closing():
                self.loop.call_later(REQUEST_S, self._look_again, cycle)

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Protocol,  # h11 bounds what a client may send before its request is whole
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
    )
