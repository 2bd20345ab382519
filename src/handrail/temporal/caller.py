"""A cluster client's parts: its connection, its codec and secrets, its options."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from temporalio.client import Client
from temporalio.converter import StorageDriver

from handrail.cluster_errors import TooLarge
from handrail.codec.codec import Codec
from handrail.engine.parts import OnChange, definition_of
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.policy import Limits
from handrail.model.shapes import WorkflowLike
from handrail.ports.sink import Sink
from handrail.record.reading import by_name, workflow_for
from handrail.record.status import run_status, run_waits
from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, SecretValues, secret_values
from handrail.temporal import wire
from handrail.temporal.cluster import Cluster, ExecutionInfo, with_blobs
from handrail.temporal.connecting import connect
from handrail.temporal.record import labels_of
from handrail.typed.reference import reference


@attrs.define
class Caller:
    """A client's parts. Mutable: it connects on first use."""

    given: Client | str
    task_queue: str = "handrail"
    blobs: StorageDriver | None = None
    local: bool = False
    workflows: tuple[WorkflowLike[..., Any], ...] = ()
    limits: Limits | None = None
    gates: Any = None
    sinks: tuple[Sink, ...] = ()
    codec: Codec = attrs.field(factory=Codec)
    secrets: Secrets = Secrets()
    linger_s: float = 0
    cleanup_timeout_s: float = 30
    max_crashes: int = 5
    on_change: OnChange = "refuse"
    heartbeat_s: float = 10
    known: dict[str, WorkflowDefinition] = attrs.field(init=False)
    """The workflows of runs, by name: those listed, and those given since to drive a run."""
    _cluster: Cluster | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.known = by_name(self.workflows)

    async def cluster(self) -> Cluster:
        """The cluster, connected on the first call.

        Raises:
            ClusterUnreachable: the cluster does not answer, or has no such namespace.
        """
        if self._cluster is None:
            client = self.given
            if isinstance(client, str):
                client = await connect(client)
            self._cluster = Cluster(with_blobs(client, self.blobs), self.task_queue)
        return self._cluster

    def values(self) -> SecretValues:
        """The secrets of this process."""
        return secret_values(self.secrets, os.environ)

    def row(self, run_id: str, event: ev.Event) -> wire.Row:
        """A message to a run, as a row stamped with this moment and no number."""
        stamped = ev.stamp(event, run_id, 0, time.time())
        return wire.row_of(stamped, self.codec, self.values())

    def rows(self, history: Iterable[ev.Event]) -> list[wire.Row]:
        """The rows of a history."""
        secrets = self.values()
        return [wire.row_of(one, self.codec, secrets) for one in history]

    def events(
        self, run_id: str, rows: Iterable[wire.Row], secrets: Mapping[str, str] | None = None
    ) -> list[ev.Event]:
        """The events of rows, with ``secrets`` put back (default: this process's)."""
        secrets = self.values() if secrets is None else secrets
        return [wire.event_of(row, run_id, self.codec, secrets) for row in rows]

    async def history(
        self, run_id: str, after: int = 0, secrets: Mapping[str, str] | None = None
    ) -> list[ev.Event]:
        """A run's events after number ``after``; ``secrets`` as for ``events``.

        Raises:
            RunNotFound: there is no such run. NoWorker: the run is open, and no worker answers.
        """
        cluster = await self.cluster()
        return self.events(run_id, await cluster.rows(run_id, after), secrets)

    async def hold(
        self,
        run_id: str,
        name: str,
        history: Sequence[ev.Event],
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Put a run onto the cluster with its record; it stays undriven until a ``resume``.

        Raises:
            RunIdTaken: a run has this id. TooLarge: the record needs a store of large values.
        """
        known = self.known.get(name)
        where = f":{name}" if known is None else workflow_reference(known)
        start = self.start(where, labels=labels_of(history))
        start.resumed = start.held = True
        values = self.values() if secrets is None else secrets
        record = wire.pack_rows([wire.row_of(one, self.codec, values) for one in history])
        size = sum(map(len, record))
        if size > wire.MOST_BYTES and self.blobs is None:
            raise TooLarge(f"the record of run {run_id}", size, wire.MOST_BYTES)
        mask, waits = Mask(SecretValues(values)), run_waits(history, time.time())[: wire.LISTED]
        memo = {
            **wire.origin_of(history[0]),
            wire.EVENTS: len(history),
            wire.HELD: run_status(history) or wire.DEAD,
            wire.WAITS: [mask.plain(msgspec.to_builtins(one)) for one in waits],
        }
        await (await self.cluster()).begin(run_id, name, start, record, memo=memo)

    def definition(
        self, execution: ExecutionInfo, given: WorkflowLike[..., Any] | None = None
    ) -> WorkflowDefinition:
        """The workflow of a run: ``given``, else the known one of its name.

        Raises:
            WorkflowNotFound: neither is there. WrongUse: ``given`` is another workflow.
        """
        return self._definition(execution, given, self.known)

    def _definition(
        self,
        execution: ExecutionInfo,
        given: WorkflowLike[..., Any] | None,
        known: Mapping[str, WorkflowDefinition],
    ) -> WorkflowDefinition:
        begun = [ev.WorkflowStarted(execution.workflow)]
        definition = None if given is None else definition_of(given, self.workflows)
        return workflow_for(begun, definition, known)

    def definition_to_drive(
        self, execution: ExecutionInfo, given: WorkflowLike[..., Any] | None
    ) -> WorkflowDefinition:
        """``given``, else the one of the run's name in ``workflows``; known from then on.

        Raises:
            WorkflowNotFound, WrongUse: as ``definition``.
        """
        definition = self._definition(execution, given, by_name(self.workflows))
        self.known[execution.workflow] = definition
        return definition

    def start(
        self,
        where: str,
        inputs: dict[str, msgspec.Raw] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Start:
        """The start message for a run whose workflow's code is at ``where``."""
        limits, gates = self.limits, self.gates
        text = None if limits is None else self.codec.dump(limits, where="limits")
        return wire.Start(
            where,
            inputs or {},
            dict(labels or {}),
            None if text is None else msgspec.Raw(text.encode()),
            gates if isinstance(gates, str) and gates != "ask" else None,
            self.cleanup_timeout_s,
            self.max_crashes,
            self.heartbeat_s,
            self.local,
            self.blobs is not None,
            bounds=wire.BOUNDS,
            on_change=self.decides,
        )

    @property
    def decides(self) -> str:
        """What to do with changed steps; empty leaves it to the worker's executor."""
        return "" if self.on_change == "refuse" else self.on_change

    @property
    def gates_here(self) -> Any:
        """What answers gates in this process: a callable, or ``"ask"``; None if nothing does."""
        return None if isinstance(self.gates, str) and self.gates != "ask" else self.gates


def workflow_reference(definition: WorkflowDefinition) -> str:
    """The ``module:name`` by which another process finds a workflow."""
    return reference(definition.function)
