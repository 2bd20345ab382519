"""``handrail hub``: claims, a board and chat for people and programs, on a socket."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused

if TYPE_CHECKING:
    from handrail.coordination.hub.hub import Hub
    from handrail.coordination.hub.roster import Tokens
    from handrail.coordination.store import HubStore

_LEAST_TOKEN = 8
_HyphenPath = Annotated[Path | None, Parameter(allow_leading_hyphen=True)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Where a hub listens, what it keeps, and what it takes.

    Parameters
    ----------
    host
        The address to listen on. An address other than this machine's needs --token-file.
    port
        The port to listen on; 0 picks a free one.
    token_file
        A file with one token per line, each followed by the names that may use it (`repo/*`). A
        token without names works for every name. Clients without a token get nothing.
    db
        The file in which the hub stores its state. Without it, a restart loses everything.
    durability
        What the file survives: a crash of the process, or a power failure too.
    hub_id
        The name that the hub gives itself in messages; by default one is made, and kept in --db.
    ttl
        How many seconds a claim lasts that does not say.
    grace
        How many seconds an agent keeps its claims after its connection ends.
    rate
        How many messages per second an agent may send; 0 for no limit.
    burst
        How many of these messages may come in one burst.
    max_history
        How many chat messages to keep.
    max_progress
        How many progress notes of the board to keep.
    max_clients
        The maximum number of connections.
    max_msg_kb
        The largest accepted message, in KiB.
    root
        The repository that absolute paths belong to; by default that of this folder.
    relay_log
        A file to which each message to everybody is appended as a line, for other programs.
    relay_max_lines
        The minimum number of lines to keep in that file.
    """

    host: str = "127.0.0.1"
    port: int = 8876
    token_file: _HyphenPath = None
    db: _HyphenPath = None
    durability: Literal["process", "power"] = "process"
    hub_id: str | None = None
    ttl: float = 3600.0
    grace: float = 15.0
    rate: float = 0.0
    burst: float = 20.0
    max_history: int = 10_000
    max_progress: int = 5_000
    max_clients: int = 64
    max_msg_kb: int = 1024
    root: _HyphenPath = None
    relay_log: _HyphenPath = None
    relay_max_lines: int = 5_000


HUB = HubOptions()


def hub(*, options: HubOptions = HUB) -> int:
    """Serve claims, a board and chat to people and programs, until SIGTERM or Ctrl-C.

    Clients of synapse-channel 0.32 can connect to it, its command `synapse` included.
    """
    from handrail.coordination.server import Limits, RelayLog, run_hub

    _check(options)
    tokens = _tokens(options)
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(one) for one in _open_sockets(options.host, options.port)]
        made, store = _build_hub(options, tokens)
        if store is not None:
            opened.enter_context(contextlib.closing(store))
        relay = RelayLog(options.relay_log, options.relay_max_lines) if options.relay_log else None
        if relay is not None:
            opened.enter_context(contextlib.closing(relay))

        def ready() -> None:
            host = f"[{options.host}]" if ":" in options.host else options.host
            print(f"ws://{host}:{sockets[0].getsockname()[1]}", flush=True)
            kept = f"in {options.db}" if options.db else "in memory only; --db FILE keeps it"
            tell(f"the hub runs until Ctrl-C; its state is kept {kept}")

        limits = Limits(clients=options.max_clients, message_bytes=options.max_msg_kb * 1024)
        run_hub(made, sockets, store=store, relay=relay, limits=limits, ready=ready, tell=tell)
    return Exit.SUCCEEDED


def _check(wanted: HubOptions) -> None:
    from handrail.coordination.hub.claiming import LEAST_LEASE_S, MOST_LEASE_S

    if not 0 <= wanted.port <= 65_535:
        raise Refused(f"--port {wanted.port}", "is not a port", "--port 0 picks a free one.")
    for name in ("grace", "rate", "burst"):
        value = getattr(wanted, name)
        if not math.isfinite(value) or value < 0:
            raise Refused(f"--{name} {value:g}", "must be 0 or more")
    if not LEAST_LEASE_S <= wanted.ttl <= MOST_LEASE_S:
        raise Refused(f"--ttl {wanted.ttl:g}", f"must be {LEAST_LEASE_S:g} seconds or more")
    if wanted.hub_id is not None and not re.fullmatch(r"[!-~]{1,64}", wanted.hub_id):
        why = "is no name: 1 to 64 printable characters, without spaces"
        raise Refused(f"--hub-id {wanted.hub_id!r}", why)
    if wanted.root is not None and not wanted.root.is_dir():
        raise Refused(f"--root {wanted.root}", "is no folder", "Name the repository's.")
    for name in ("max_history", "max_progress", "max_clients", "max_msg_kb", "relay_max_lines"):
        value = getattr(wanted, name)
        if value < 1:
            raise Refused(f"--{name.replace('_', '-')} {value}", "must be 1 or more")


def _build_hub(wanted: HubOptions, tokens: Tokens | None) -> tuple[Hub, HubStore | None]:
    """The hub, with the state that its file has, and its store (None without a file)."""
    from handrail.coordination.hub.hub import Hub
    from handrail.coordination.hub.state import Settings
    from handrail.coordination.store import HubStore, new_id

    store = HubStore(wanted.db, synced=wanted.durability == "power") if wanted.db else None
    root = (wanted.root or _repository(Path.cwd())).absolute()
    settings = Settings(
        hub_id=wanted.hub_id or (store.hub_id if store else new_id()),
        lease_s=wanted.ttl,
        grace_s=wanted.grace,
        per_s=wanted.rate,
        burst=wanted.burst,
        max_history=wanted.max_history,
        max_progress=wanted.max_progress,
        real=os.path.realpath,
        roots=tuple(dict.fromkeys((str(root), str(root.resolve())))),
        folds_case=_folds_case(root),
        tokens=tokens,
    )
    return Hub(settings, store.read() if store else (), time.time()), store


def _repository(folder: Path) -> Path:
    """The root of the repository that a folder is in, or the folder."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _folds_case(root: Path) -> bool:
    """True if the folder's file system ignores the case of names."""
    with contextlib.suppress(OSError):
        return root.name != root.name.swapcase() and root.samefile(
            root.with_name(root.name.swapcase())
        )
    return False


# -- tokens and sockets ----------------------------------------------------------------------------


def _tokens(wanted: HubOptions) -> Tokens | None:
    from handrail.coordination.hub.roster import Tokens

    path = wanted.token_file
    if path is None:
        if not _is_loopback(wanted.host):
            why = "would let in everybody who can reach this machine"
            raise Refused(f"--host {wanted.host}", why, "Add --token-file FILE.")
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = f"cannot be read: {getattr(error, 'strerror', error)}"
        raise Refused(f"--token-file {path}", why) from None
    words = [line.split()[0] for line in lines if line.strip() and line.lstrip()[0] != "#"]
    if not words:
        raise Refused(f"--token-file {path}", "has no token", "Write one per line.")
    if any(len(word) < _LEAST_TOKEN for word in words):
        why = f"has a token of fewer than {_LEAST_TOKEN} characters, which can be guessed"
        raise Refused(f"--token-file {path}", why)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        tell(f"{path} can be read by others on this machine: chmod 600 {path}")
        try:
            path.chmod(0o600)
        except OSError as error:
            raise Refused(f"--token-file {path}", f"stays so: {error.strerror}") from None
    return Tokens.of(lines)


def _is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = (str(at[4][0]).partition("%")[0] for at in found)
    return bool(host) and all(ipaddress.ip_address(one).is_loopback for one in addresses)


def _open_sockets(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of the host, all on one port.

    Raises:
        Refused: one cannot be listened on.
    """
    found: list[socket.socket] = []
    try:
        for family, _, _, _, at in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            port = found[0].getsockname()[1] if found else port
            found.append(_bind_socket(family, (at[0], port, *at[2:])))
    except OSError as error:
        for one in found:
            one.close()
        why = f"cannot be listened on: {error.strerror or error}"
        hint = "--port 0 picks a free one." if port else ""
        raise Refused(f"--host {host} --port {port}", why, hint) from None
    return found


def _bind_socket(family: int, at: tuple[object, ...]) -> socket.socket:
    # The protocol is named: asyncio sends small messages at once only on a socket known as TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(at)
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made
