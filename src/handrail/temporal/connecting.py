"""Connections to a cluster, by ``ADDRESS[/NAMESPACE]``.

Other settings (TLS, an API key, headers) come from where Temporal's own programs read them: from
variables such as ``TEMPORAL_API_KEY`` and ``TEMPORAL_TLS``, or from a profile in Temporal's file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from datetime import timedelta
from functools import cache
from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import RetryConfig, RPCError

from handrail.cluster_errors import ClusterUnreachable
from handrail.errors import ReplayMismatch, WrongUse
from handrail.project import project_table
from handrail.temporal.wire import AGAIN

DEFAULT_NAMESPACE = "default"
QUEUE_VARIABLE = "HANDRAIL_TASK_QUEUE"
BLOBS_VARIABLE = "HANDRAIL_BLOBS"
DEFAULT_QUEUE = "handrail"
_MESSAGES = re.compile(r'message: "([^"]+)"')
_WORKER_RETRIES = RetryConfig(max_elapsed_time_millis=3_600_000, max_retries=100_000)
"""A worker repeats a failed call for up to an hour, so an outage does not lose steps' ends."""
_ANSWERS_WITHIN_S = 15.0
_LOOKS_EVERY_S = 10.0
_LOGGED = (
    "warn,temporalio_client::retry=error,temporalio_sdk_core::worker::activities=error,"
    "temporalio_sdk_core::worker::heartbeat=error,temporalio_sdk_core::worker::workflow=error"
)
"""Silences the library's log of each retried call, some hundred a minute during an outage, and of
each task that changed code fails. ``log_outages`` reports an outage once, and so does a client that
waits for a run; ``FailedOnce`` reports changed code.
"""


class FailedOnce(logging.Filter):
    """Has a worker log once, in a line, that its code does not match a run's record.

    Mutable: it keeps what was said.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what has been said, and for an error after which the run is just made anew."""
        error = record.exc_info[1] if record.exc_info else None
        text = str(error)
        if isinstance(error, ReplayMismatch):
            record.msg, record.args, record.exc_info = text, (), None
        elif not text.startswith(AGAIN):
            return True
        is_new = isinstance(error, ReplayMismatch) and text not in self._said
        self._said.add(text)
        return is_new


def settings(queue: str | None = None, blobs: str | None = None) -> tuple[str, str | None]:
    """The task queue and the store of large values: typed, of the environment, or the project's."""
    table = project_table()
    queue = queue or os.environ.get(QUEUE_VARIABLE) or table.get("task_queue")
    return queue or DEFAULT_QUEUE, blobs or os.environ.get(BLOBS_VARIABLE) or table.get("blobs")


def split_address(where: str) -> tuple[str, str]:
    """Address and namespace.

    Raises:
        WrongUse: ``where`` has no port.
    """
    address, _, namespace = where.partition("/")
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise WrongUse(
            f"a cluster is ADDRESS:PORT or ADDRESS:PORT/NAMESPACE, such as localhost:7233, "
            f"got {where!r}"
        )
    return address, namespace or DEFAULT_NAMESPACE


async def connect(where: str, *, patient: bool = False) -> Client:
    """A client of the cluster; ``patient``: it retries its calls during an outage, for an hour.

    Raises:
        ClusterUnreachable: the cluster does not answer, or has no such namespace.
        WrongUse: as ``split_address``.
    """
    address, namespace = split_address(where)
    config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    config.update(target_host=address, namespace=namespace, runtime=_runtime())
    if patient:
        config["retry_config"] = _WORKER_RETRIES
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            client = await Client.connect(**config)
            await client.workflow_service.describe_namespace(_namespace_request(namespace))
    except TimeoutError:
        why = f"no answer within {_ANSWERS_WITHIN_S:g} s"
        raise ClusterUnreachable(f"{address}/{namespace}", why, is_away=True) from None
    except (RuntimeError, RPCError) as error:
        is_away = isinstance(error, RuntimeError)
        text = connection_error_text(error)
        raise ClusterUnreachable(f"{address}/{namespace}", text, is_away=is_away) from None
    return client


@cache
def _runtime() -> Runtime:
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=_LOGGED)))


async def log_outages(client: Client) -> None:
    """Log each outage of the cluster once, and once that it is over; never ends."""
    import structlog

    log, away_since = structlog.get_logger("handrail"), 0.0
    where = f"{client.service_client.config.target_host}/{client.namespace}"
    while True:
        await asyncio.sleep(_LOOKS_EVERY_S)
        now = time.monotonic()
        try:
            await client.service_client.check_health(timeout=timedelta(seconds=_LOOKS_EVERY_S))
        except RPCError as error:
            if not away_since:
                away_since = now
                log.warning(
                    "the cluster does not answer: running steps continue, and their results are "
                    "sent when it does",
                    cluster=where,
                    trouble=connection_error_text(error),
                )
        else:
            if away_since:
                log.warning("the cluster answers again", cluster=where, away_s=now - away_since)
            away_since = 0.0


def connection_error_text(error: Exception) -> str:
    """Why the cluster was not reached: the innermost message, without the library's types."""
    text = str(error)
    for found in _MESSAGES.finditer(text):
        text = found[1]
    return text.rstrip(".")


def _namespace_request(namespace: str) -> Any:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    return DescribeNamespaceRequest(namespace=namespace)
