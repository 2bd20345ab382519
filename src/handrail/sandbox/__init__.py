"""The boundary around a launch: what it sees, what it may change, what it may connect to."""

from __future__ import annotations


def is_available() -> bool:
    """True if this machine can enforce a sandbox: where one is wanted, but may be missing."""
    from handrail.sandbox.bubblewrap import why_unavailable

    return why_unavailable() is None
