"""The process of a channel. It holds references and small values, and learns from the agents which consumers end."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayError

from roost.engine.channels.channel_desk import ChannelDesk
from roost.engine.channels.channel_table import Handed
from roost.engine.processes.process_facts import Process


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

    async def join_watched(self, consumer: str, who: str, process: Process, agent: Any) -> None:
        """Register a consumer, and learn of its end from the agent of its node."""
        await self.join(consumer, who)
        self._watchers[consumer] = asyncio.get_running_loop().create_task(
            self._watch(consumer, process, agent)
        )

    async def leave(self, consumer: str) -> None:
        """Deregister a consumer that ends in order or leaves the job."""
        watcher = self._watchers.pop(consumer, None)
        if watcher is not None:
            watcher.cancel()
        self.consumer_ended(consumer, in_order=True)

    async def _watch(self, consumer: str, process: Process, agent: Any) -> None:
        try:
            in_order = await agent.ended.remote(process)
        except RayError:  # the agent's node is gone, and the process with it
            in_order = False
        del self._watchers[consumer]
        self.consumer_ended(consumer, in_order)
