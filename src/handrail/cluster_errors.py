"""Errors of runs on a Temporal cluster; importing them does not load the cluster's library."""

from __future__ import annotations

from handrail.errors import HandrailError


class NotDeterministic(HandrailError):
    """A workflow's body could decide differently when another machine runs it again."""

    def __init__(self, workflow: str, findings: tuple[str, ...]) -> None:
        super().__init__(workflow, findings)
        self.workflow = workflow
        self.findings = findings

    def __str__(self) -> str:
        said = "\n".join(self.findings)
        return (
            f"workflow {self.workflow!r} cannot run on a cluster, which runs its body repeatedly "
            f"on different machines:\n{said}"
        )


class TooLarge(HandrailError):
    """A value is larger than a cluster accepts, and no store of large values is configured."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(what, size_bytes, limit_bytes)
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"{self.what} has {self.size_bytes:,} bytes, and the cluster takes {self.limit_bytes:,}"
            f" at most. Give workers and clients a store of large values (blobs=, --blobs), or "
            f"pass a file's name or an address"
        )


class ClusterUnreachable(HandrailError):
    """A cluster does not answer (``is_away``), or has no such namespace."""

    def __init__(self, address: str, why: str, *, is_away: bool = False) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why
        self.is_away = is_away

    def __str__(self) -> str:
        return (
            f"the cluster at {self.address} cannot be reached: {self.why}. Check its address and "
            f"namespace (ADDRESS/NAMESPACE), and whether it runs. Its runs continue once it does."
        )


class NoWorker(HandrailError):
    """No worker answers for a run on a cluster."""

    def __init__(self, run_id: str, task_queue: str, why: str) -> None:
        super().__init__(run_id, task_queue, why)
        self.run_id = run_id
        self.task_queue = task_queue
        self.why = why

    def __str__(self) -> str:
        return (
            f"no worker answers for run {self.run_id} on task queue {self.task_queue!r}: "
            f"{self.why.rstrip('.')}. Start one: handrail worker --temporal ADDRESS MODULE."
        )


class RunTerminated(HandrailError):
    """A run's execution on a cluster ended, by termination say, before the run recorded its end."""

    def __init__(self, run_id: str, how: str) -> None:
        super().__init__(run_id, how)
        self.run_id = run_id
        self.how = how

    def __str__(self) -> str:
        return (
            f"run {self.run_id} was {self.how} on the cluster from outside handrail. It has no "
            f"recorded end, and nothing was rolled back. resume() continues it."
        )


class BlobMissing(HandrailError):
    """The store of large values has lost a value of a run, or has other bytes in its place."""

    def __init__(self, name: str, where: str, *, damaged: bool = False) -> None:
        super().__init__(name, where)
        self.name = name
        self.where = where
        self.damaged = damaged

    def __str__(self) -> str:
        what = "is damaged" if self.damaged else "is missing"
        return (
            f"the value {self.name} {what} in {self.where}. Workers and clients must use the "
            f"same store (blobs=, --blobs). Delete nothing from it while a run needs it."
        )


class ServerNotStarted(HandrailError):
    """A local cluster's program is not installed, or did not start."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"a cluster on this machine could not be started: {self.why}"


class ClusterRefused(HandrailError):
    """The cluster did not get a step's attempt or rollback performed, or did not accept its end."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"step {self.path!r} could not be performed on the cluster: {self.why}"
