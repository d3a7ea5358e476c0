"""This process's side of a data buffer on Ray, and the process of the buffer."""

from __future__ import annotations

from typing import Any

import ray

from roost.engine.channels.buffer_desk import BufferDesk, no_such_buffer
from roost.engine.connection.actors import answer
from roost.engine.job.agents import find_kept, find_or_keep, process_ended
from roost.engine.job.packed_value import PackedValue, Packer, unpack
from roost.errors import ConfigurationError, JobEnded

ANSWER_WITHIN = 300.0  # seconds; a large file is read when the buffer is made


class BufferHost:
    """The process of a buffer. `open` opens the source: Ray does not pass on the errors of an actor's constructor."""

    def __init__(self) -> None:
        self._desk: BufferDesk | None = None

    async def open(self, name: str, source: bytes | PackedValue | None, seed: int) -> None:
        if self._desk is None:
            if source is None:
                raise no_such_buffer(name)
            self._desk = BufferDesk(unpack(source), seed)

    async def is_empty(self) -> bool:
        return self._desk is None

    async def ask(self, method: str, *args: Any) -> Any:
        return getattr(self._desk, method)(*args)  # never waits, so calls of several processes do not mix


class RayBuffer:
    def __init__(self, job: str, name: str, host: Any) -> None:
        self.job, self.name, self._host = job, name, host

    def ask(self, method: str, *args: Any) -> Any:
        asked = self._host.ask.remote(method, *args)
        try:
            return answer(asked, f"asking data buffer {self.name!r} to {method}", ANSWER_WITHIN)
        except JobEnded as error:
            what = f"the process of data buffer {self.name!r} has ended, and with it what it has given out"
            raise process_ended(self.job, self._host, what, error) from None


def open_ray_buffer(name: str, source: Any, seed: int) -> RayBuffer:
    """Open the buffer, or start it on this node, where the source's file is."""
    actor = f"data-buffer:{name}"
    if source is None:
        job, host = find_kept(actor)
        if host is None:
            raise no_such_buffer(name)
    else:
        job, host = find_or_keep(actor, BufferHost, on_this_node=True)
    packed = None if source is None else Packer(inline=0).pack(source)
    try:
        answer(host.open.remote(name, packed, seed), f"opening data buffer {name!r}", ANSWER_WITHIN)
    except ConfigurationError:  # the next process that makes the buffer may be on another node
        if answer(host.is_empty.remote(), f"asking data buffer {name!r}"):
            ray.kill(host)
        raise
    return RayBuffer(job, name, host)
