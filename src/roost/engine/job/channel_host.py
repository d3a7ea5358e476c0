"""The process of a channel. It holds references and small values, and learns from the agents which consumers end."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from roost.engine.channels.channel_desk import ChannelDesk
from roost.engine.channels.channel_values import Handed
from roost.engine.processes.process_facts import Process

LOOK_EVERY = 1.0  # seconds between two looks at Ray's table of nodes
NOTICED_WITHIN = 30.0  # seconds in which Ray notices that a node is gone


def channel_actor(name: str) -> str:
    """The name of the channel's actor, in the namespace of its job."""
    return f"channel:{name}"


class ChannelHost(ChannelDesk):
    def __init__(self) -> None:
        super().__init__()
        self._watchers: dict[str, asyncio.Task[None]] = {}

    async def exchange(self, message: bytes, contents: Sequence[Any] | None = None) -> Any:
        """Carry out a put or a take. Request and answer are one message each: Ray encodes several small values slower.

        Only Ray can encode references, so `contents` and the answer stay outside the message if they hold some.
        """
        method, args = pickle.loads(message)
        if contents is not None:
            args = (*args, contents)
        decision = await getattr(self, method)(*args)
        plain = not isinstance(decision, Handed) or all(
            type(item.content) is bytes for item in decision.items
        )
        return pickle.dumps(decision, 5) if plain else decision

    async def join_watched(
        self, consumer: str, who: str, process: Process, agent: Any, name: Sequence[str], node_id: str
    ) -> None:
        """Register a consumer, and learn of its end from the agent of its node, which has this name and namespace."""
        await self.join(consumer, who)
        self._watchers[consumer] = asyncio.get_running_loop().create_task(
            self._watch(consumer, process, agent, name, node_id)
        )

    async def leave(self, consumer: str, in_order: bool) -> None:
        """Deregister a consumer that ends or leaves the job."""
        watcher = self._watchers.pop(consumer, None)
        if watcher is not None:
            watcher.cancel()
        self.consumer_ended(consumer, in_order)

    async def _watch(
        self, consumer: str, process: Process, agent: Any, name: Sequence[str], node_id: str
    ) -> None:
        has_ended = in_order = False
        while agent is not None:
            try:
                has_ended, in_order = True, await agent.ended.remote(process)
                break
            except RayError:  # where only the agent is gone, the process may still work on what it has taken
                has_ended, agent = await _after(agent, name, node_id)
        del self._watchers[consumer]
        if has_ended:
            self.consumer_ended(consumer, in_order)


async def _after(agent: Any, name: Sequence[str], node_id: str) -> tuple[bool, Any]:
    """Whether the node of an agent that has ended is gone, and the agent's successor if there is one.

    Waits for Ray to notice: an agent ends before its node does.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + NOTICED_WITHIN
    while any(
        node["NodeID"] == node_id and node["Alive"] for node in await loop.run_in_executor(None, ray.nodes)
    ):
        with suppress(ValueError):  # there is none now
            found = await loop.run_in_executor(None, ray.get_actor, *name)
            if found._actor_id != agent._actor_id:
                return False, found
        if loop.time() > until:
            return False, None
        await asyncio.sleep(LOOK_EVERY)
    return True, None
