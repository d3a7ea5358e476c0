"""This process's side of a channel on Ray.

Ray loses an object when the process that put it ends. So the channel hands large values to the agent of the node,
which puts them into the node's object store again; they last as long as the job has that node.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from roost.engine.channels.channel_errors import cannot_travel
from roost.engine.channels.channel_values import Handed
from roost.engine.connection.actors import answer, async_answer, job_namespace
from roost.engine.job.agents import agent_on, find_or_keep, head_agent, process_ended
from roost.engine.job.channel_host import ChannelHost, channel_actor
from roost.engine.job.managers import check_connected
from roost.engine.job.node_agent import agent_name
from roost.engine.job.open_jobs import is_driver
from roost.engine.job.packed_value import PackedValue, Packer, SmallValue, StoredValue, unpack
from roost.engine.processes.process_facts import this_process
from roost.engine.workers.remote_errors import in_one_line
from roost.engine.workers.worker_context import describe_this_process
from roost.errors import (
    ChannelError,
    ClusterError,
    ConfigurationError,
    JobEnded,
    NoAnswer,
    RoostError,
    counted,
)

GRACE = 60.0  # seconds that a process of roost may be late with its answer
# (items, bytes): while the channel has fewer items, values of at most so many bytes travel in messages.
INLINE = ((256, 16_384), (8_192, 4_096))
INLINE_IN_FULL = 256
# Bytes of an object that holds several values: making an object costs as much as storing hundreds of KiB.
OBJECT = 1024 * 1024
CHUNK = 64 * 1024 * 1024  # bytes handed to an agent at a time


class RayChannel:
    """The coroutines of this object block, or, `for_coroutines`, let others run while they wait."""

    note = ""

    def __init__(self, job: str, name: str, host: Any, waits: bool = False) -> None:
        self.job, self.name, self._host, self._waits = job, name, host, waits
        self._agent: Any = None

    def for_coroutines(self) -> RayChannel:
        return RayChannel(self.job, self.name, self._host, waits=True)

    # -- what the channel's process is asked -----------------------------------------------------------

    async def ask(self, method: str, *args: Any) -> Any:
        check_connected()
        ref = getattr(self._host, method).remote(*args)
        return await self._answer(ref, f"asking channel {self.name!r} to {method}", GRACE)

    async def put(self, token: str, timeout: float, *request: Any) -> Any:
        *facts, contents = request
        plain = all(type(content) is bytes for content in contents)
        rest = (*facts, contents) if plain else tuple(facts)
        return await self._exchange("put", (token, timeout, *rest), *([] if plain else [contents]))

    async def take(self, token: str, timeout: float, *request: Any) -> Any:
        return await self._exchange("take", (token, timeout, *request))

    async def _exchange(self, method: str, request: tuple[Any, ...], *contents: Any) -> Any:
        check_connected()
        ref = self._host.exchange.remote(pickle.dumps((method, request), 5), *contents)
        found = await self._answer(ref, f"a {method} at channel {self.name!r}", request[1] + GRACE)
        return pickle.loads(found) if type(found) is bytes else found

    def new_token(self) -> str:
        return f"{_own_prefix}.{os.getpid()}.{next(_tokens)}"

    def patience(self, timeout: float) -> float:
        return timeout

    async def _answer(self, refs: Any, what: str, within: float, of_channel: bool = True) -> Any:
        """The answer of the channel's process, or else of an agent."""
        try:
            return await async_answer(refs, what, within) if self._waits else answer(refs, what, within)
        except JobEnded as error:
            raise self._ended(error) if of_channel else error from None

    def _ended(self, error: JobEnded) -> RoostError:
        what = f"the process of channel {self.name!r} has ended, and its items are lost with it"
        return process_ended(self.job, self._host, what, error)

    def withdraw(self, token: str) -> None:
        """Tell the channel that the caller no longer waits for this request."""
        if ray.is_initialized():
            self._host.withdraw.remote(token)

    async def consumer(self) -> str:
        """This process's name as a consumer of the channel. Registers the process on first use."""
        check_connected()
        # By the actor: a channel that was lost may be made anew.
        place = (os.getpid(), self.job, self._host._actor_id.hex())
        if place not in _consumers:
            token, who = secrets.token_hex(8), describe_this_process()
            node_id = ray.get_runtime_context().get_node_id()
            agent = agent_on(self.job, node_id)
            if agent is not None:
                name = agent_name(node_id), job_namespace(self.job)
                join: tuple[Any, ...] = ("join_watched", token, who, this_process(), agent, name, node_id)
            elif is_driver(self.job):  # the job ends with its driver, so no agent need watch the driver
                join = ("join", token, who)
            else:
                head_agent(self.job)  # raises if the job has ended
                raise ClusterError(
                    code="RE114",
                    what=f"this process cannot take from channel {self.name!r}: its node is not in job {self.job!r}",
                    why="no agent of the job would notice its end, and what it took would be lost",
                    remedy="take in a worker or in the driver",
                )
            # Stored before the answer: other threads and coroutines of this process are the same consumer.
            if _consumers.setdefault(place, (self._host, token))[1] == token:
                try:
                    await self.ask(*join)
                except Exception:
                    del _consumers[place]
                    raise
        return _consumers[place][1]

    # -- values ----------------------------------------------------------------------------------------

    async def stored(self, values: Sequence[Any], held: int) -> list[Any]:
        """Small values as bytes, large ones as references to objects that outlive this process.

        `held` is the number of items in the channel.
        """
        check_connected()
        held += len(values)
        packer = Packer(next((limit for fewer, limit in INLINE if held < fewer), INLINE_IN_FULL))
        contents: list[Any] = [self._packed(packer, value) for value in values]
        for chunk in _chunks({place: one.size for place, one in enumerate(contents) if _is_large(one)}):
            adopted = await self._adopted([[contents[place] for place in places] for places in chunk])
            for places, reference in zip(chunk, adopted, strict=True):
                for number, place in enumerate(places):
                    contents[place] = StoredValue(reference, number)
        return contents

    async def _adopted(self, objects: Sequence[Any], again: bool = True) -> Any:
        """References to these objects, which the agent of the node has put. An agent that died has a successor."""
        what, agent = f"storing {counted(sum(map(len, objects)), 'item')}", self._own_agent()
        what += f" for channel {self.name!r}"
        try:
            return await self._answer(agent.adopt.remote(*objects), what, 600.0, of_channel=False)
        except JobEnded as error:
            self._agent = None
            if again:
                return await self._adopted(objects, again=False)
            what += " failed: roost's agent of the node has ended"
            raise process_ended(self.job, agent, what, error, "put again in a few seconds") from None

    def _packed(self, packer: Packer, value: Any) -> Any:
        try:
            return packer.pack(value)
        except Exception as error:
            raise cannot_travel(self.name, value, in_one_line(error)) from error

    async def opened(self, handed: Handed) -> list[Any]:
        """The values of the items. If some are lost, raises, and the other items go back to the channel."""
        contents = [item.content for item in handed.items]
        refs = list(dict.fromkeys(one.object for one in contents if isinstance(one, StoredValue)))
        if not refs:
            return self._loaded(contents)
        try:
            what = f"fetching {counted(len(refs), 'object')} of channel {self.name!r}"
            found = await self._answer(refs, what, 600.0, of_channel=False)
        except ray.exceptions.RayError as error:
            until = time.monotonic() + GRACE
            gone = {ref for ref in refs if await self._is_lost(ref, until)}
            lost = [item.number for item in handed.items if getattr(item.content, "object", None) in gone]
            if not lost:  # they can be fetched after all
                return await self.opened(handed)
            await self.ask("lose", handed.token, lost)
            raise ChannelError(
                code="RE126",
                what=f"{counted(len(lost), 'item')} of channel {self.name!r} cannot be fetched",
                why=f"the node that held them is gone, or roost's agent there ({type(error).__name__})",
                remedy="the other items of this take are in the channel again",
            ) from error
        objects = dict(zip(refs, found, strict=True))
        return self._loaded(
            [objects[one.object][one.place] if isinstance(one, StoredValue) else one for one in contents]
        )

    async def _is_lost(self, ref: Any, until: float) -> bool:
        try:
            await self._answer(ref, "fetching it", max(0.0, until - time.monotonic()), of_channel=False)
        except NoAnswer:  # slow, but not lost
            return False
        except ray.exceptions.RayError:
            return True
        return False

    def _loaded(self, contents: Sequence[Any]) -> list[Any]:
        try:
            return [unpack(content) for content in contents]
        except Exception as error:
            raise ConfigurationError(
                code="RC103",
                what=f"an item of channel {self.name!r} cannot be loaded by this process",
                why=in_one_line(error)[:500],
                remedy="make its class importable here; the items of this take are in the channel again",
            ) from error

    def _own_agent(self) -> Any:
        """The agent of this node, or of the job's first node."""
        if self._agent is None:
            node_id = ray.get_runtime_context().get_node_id()
            self._agent = agent_on(self.job, node_id) or head_agent(self.job)
        return self._agent


# This process's actor handle and consumer name for each channel: by process number, job and actor id.
_consumers: dict[tuple[int, str, str], tuple[Any, str]] = {}
_tokens = itertools.count()
_own_prefix = secrets.token_hex(8)


def open_ray_channel(name: str) -> RayChannel:
    """The channel of this process's job. The first process that opens the channel creates it."""
    job, host = find_or_keep(channel_actor(name), ChannelHost)
    return RayChannel(job, name, host)


def leave_channels(job: str | None = None) -> None:
    """Acknowledge the items this process has taken, when it ends in order or leaves the job.

    Gives them back where an exception ends it: the program may have raised while it worked on them.
    """
    # Python keeps the exception that ended a program. In an interactive session it is that of an earlier line.
    ended_by = None if hasattr(sys, "ps1") else getattr(sys, "last_type", None)
    in_order = issubclass(sys.exc_info()[0] or ended_by or SystemExit, SystemExit)
    left = [place for place in _consumers if place[0] == os.getpid() and job in (None, place[1])]
    refs = []
    for place in left:
        host, token = _consumers.pop(place)
        if ray.is_initialized():
            refs.append(host.leave.remote(token, in_order))
    if refs:
        ray.wait(refs, num_returns=len(refs), timeout=2)


atexit.register(leave_channels)


def _is_large(content: Any) -> bool:
    return isinstance(content, PackedValue) and not isinstance(content, SmallValue)


def _chunks(sizes: Mapping[int, int]) -> Iterator[list[list[int]]]:
    """What to hand to an agent at a time: objects, each with the places of its values."""
    chunk: list[list[int]] = []
    total = room = 0
    for place, size in sizes.items():
        if size <= room:
            chunk[-1].append(place)
            room -= size
        else:
            chunk.append([place])
            room = OBJECT - size
        total += size
        if total >= CHUNK:
            yield chunk
            chunk, total, room = [], 0, 0
    if chunk:
        yield chunk
