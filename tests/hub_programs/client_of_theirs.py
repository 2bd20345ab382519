"""Run by the Python that has synapse-channel: its client library says what a script says.

``python client_of_theirs.py URL [TOKEN] < script``. A line of the script is ``[agent, method, args,
kwargs]`` in JSON; the agent connects with the first of them, and `close` ends it. What was heard
until everybody has had an answer to a question of their own is printed, line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from synapse_channel import SynapseAgent  # type: ignore[import-not-found]
from websockets.exceptions import ConnectionClosed


class Agent:
    """One client, and what it heard."""

    def __init__(self, name: str, url: str, token: str | None, **options: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answered = asyncio.Event()
        self.client = SynapseAgent(name, self.hear, uri=url, token=token, verbose=False, **options)
        self.task = asyncio.create_task(self.client.connect())

    async def hear(self, message: dict[str, Any]) -> None:
        """Keep a message; that which answers ``settle`` only ends it."""
        if message.get("type") == "who_snapshot" and not self.answered.is_set():
            self.answered.set()
        else:
            self.heard.append(message)

    async def settle(self) -> None:
        """Wait until all that was sent before has come."""
        self.answered.clear()
        with contextlib.suppress(ConnectionClosed):  # for another of its name, at any moment
            await self.client.request_who()
        waits = asyncio.ensure_future(self.answered.wait())
        await asyncio.wait({waits, self.task}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        self.answered.set()


OUT, sys.stdout = sys.stdout, sys.stderr  # the client prints, too


async def main(url: str, token: str | None) -> None:
    """Do what the script says."""
    agents: dict[str, Agent] = {}
    for line in sys.stdin:
        name, method, args, kwargs = json.loads(line)
        if method == "connect":
            agents[name] = Agent(kwargs.pop("name", name), url, token, **kwargs)
            ready = await agents[name].client.wait_until_ready()
            if not ready:
                agents[name].heard.append({"type": "not ready"})
        elif method == "close":
            agents[name].task.cancel()
            await asyncio.wait({agents[name].task})
        else:
            await getattr(agents[name].client, method)(*args, **kwargs)
        alive = [agent for agent in agents.values() if not agent.task.done()]
        for agent in [*alive, *alive]:  # who is asked last hears what the first has led to
            await agent.settle()
        heard = {name: agent.heard for name, agent in agents.items() if agent.heard}
        OUT.write(f"{json.dumps(heard)}\n")
        for agent in agents.values():
            agent.heard = []
    for agent in agents.values():
        agent.task.cancel()


asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
