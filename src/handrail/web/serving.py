"""The page on a port of this machine."""

# pyright: basic, reportMissingImports=false
# Whoever works on another part need not have the extra: mypy checks this where it is installed.
from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from typing import Any

from handrail.errors import MissingExtra

HOST = "127.0.0.1"


def listening(port: int) -> socket.socket:
    """A socket of this machine alone; port 0 takes a free one.

    Raises:
        OSError: the port is taken, or is none.
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
    with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
        _server(app).run(sockets=[at])


@contextlib.contextmanager
def served(app: Any, at: socket.socket) -> Generator[None]:
    """Serve an application in a thread of its own, as long as this is entered.

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


def _server(app: Any) -> Any:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("The page", "uvicorn", "web") from error
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",  # it bounds what a client may send before its request is whole
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
