"""Connections to a cluster, by ``ADDRESS[/NAMESPACE]``.

Whatever else a cluster wants (TLS, an API key, headers) is found where Temporal's own programs find
it: in variables such as ``TEMPORAL_API_KEY`` and ``TEMPORAL_TLS``, or in a profile of its file.
"""

from __future__ import annotations

import re
from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RetryConfig, RPCError

from handrail.cluster_errors import ClusterUnreachable
from handrail.errors import WrongUse

DEFAULT_NAMESPACE = "default"
_MESSAGES = re.compile(r'message: "([^"]+)"')
PATIENT = RetryConfig(max_elapsed_time_millis=3_600_000, max_retries=100_000)
"""A worker says what it has done when the cluster is back: for an hour it tries again."""


def parted(where: str) -> tuple[str, str]:
    """Address and namespace.

    Raises:
        WrongUse: it is no address.
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
    """A client of the cluster; ``patient``: what it says is said again while that is away.

    Raises:
        ClusterUnreachable: it does not answer, or has no such namespace. WrongUse: as ``parted``.
    """
    address, namespace = parted(where)
    config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    config.update(target_host=address, namespace=namespace)
    if patient:
        config["retry_config"] = PATIENT
    try:
        client = await Client.connect(**config)
        await client.workflow_service.describe_namespace(_namespace_request(namespace))
    except (RuntimeError, RPCError) as error:
        raise ClusterUnreachable(f"{address}/{namespace}", said_of(error)) from None
    return client


def said_of(error: Exception) -> str:
    """Why a cluster was not reached, without the types of its library."""
    text = str(error)
    for found in _MESSAGES.finditer(text):
        text = found[1]
    return text.rstrip(".")


def _namespace_request(namespace: str) -> Any:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    return DescribeNamespaceRequest(namespace=namespace)
