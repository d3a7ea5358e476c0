"""This process's side of a data buffer on Ray, and the process of the buffer."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayTaskError

from roost.engine.channels.buffer_desk import BufferDesk, cannot_be_put_back, no_such_buffer
from roost.engine.connection.actors import answer
from roost.engine.job.agents import find_kept, find_or_keep, process_ended
from roost.engine.job.managers import check_connected
from roost.engine.job.packed_value import PackedValue, Packer, unpack
from roost.engine.workers.remote_errors import in_one_line
from roost.errors import ConfigurationError, JobEnded, RoostError

ANSWER_WITHIN = 300.0  # seconds; a large file is read when the buffer is made


class BufferHost:
    """The process of a buffer. `open` opens the source: Ray does not pass on the errors of an actor's constructor."""

    def __init__(self) -> None:
        self._desk: BufferDesk | None = None
        self._name = ""

    async def open(self, name: str, source: bytes | PackedValue | None, seed: int) -> None:
        if self._desk is None:
            if source is None:
                raise no_such_buffer(name)
            try:
                opened = unpack(source)
            except Exception as error:
                raise ConfigurationError(
                    code="RC103",
                    what=f"the source of data buffer {name!r} cannot be loaded by the buffer's process",
                    why=in_one_line(error)[:500],
                    remedy="make its class importable on this node, or give plain data",
                ) from None
            self._name, self._desk = name, BufferDesk(opened, seed, _packed)

    async def is_empty(self) -> bool:
        return self._desk is None

    async def ask(self, method: str, packed: PackedValue) -> Any:
        try:
            args = unpack(packed)
        except Exception as error:
            raise cannot_be_put_back(self._name, in_one_line(error)) from None
        try:
            return getattr(self._desk, method)(*args)  # never waits, so calls of several processes do not mix
        except RoostError as error:
            raise error from None  # Ray would carry the whole text of its cause


class RayBuffer:
    def __init__(self, job: str, name: str, host: Any) -> None:
        self.job, self.name, self._host = job, name, host

    def ask(self, method: str, *args: Any) -> Any:
        check_connected()
        try:
            packed = _packed(args)
        except Exception as error:
            raise cannot_be_put_back(self.name, in_one_line(error)) from error
        asked = self._host.ask.remote(method, packed)
        try:
            found = answer(asked, f"asking data buffer {self.name!r} to {method}", ANSWER_WITHIN)
        except JobEnded as error:
            raise _ended(self.job, self.name, self._host, error) from None
        return unpack(found) if isinstance(found, PackedValue) else found


def open_ray_buffer(name: str, source: Any, seed: int) -> RayBuffer:
    """Open the buffer, or start it on this node, where the source's file is."""
    actor, packed = f"data-buffer:{name}", None
    if source is not None:
        try:
            packed = _packed(source)
        except Exception as error:
            raise ConfigurationError(
                code="RC103",
                what=f"the source of data buffer {name!r} cannot go to the buffer's process",
                why=in_one_line(error)[:500],
                remedy="give a path of JSON lines, plain data, or an object that can be pickled",
            ) from error
    if source is None:
        job, host = find_kept(actor)
        if host is None:
            raise no_such_buffer(name)
    else:
        job, host = find_or_keep(actor, BufferHost, on_this_node=True)
    try:
        answer(host.open.remote(name, packed, seed), f"opening data buffer {name!r}", ANSWER_WITHIN)
    except JobEnded as error:  # Ray still finds a dead process by its name
        raise _ended(job, name, host, error) from None
    except (ConfigurationError, RayTaskError):  # the next process that makes it may be on another node
        if answer(host.is_empty.remote(), f"asking data buffer {name!r}"):
            ray.kill(host)
        raise
    return RayBuffer(job, name, host)


def _ended(job: str, name: str, host: Any, error: JobEnded) -> RoostError:
    what = f"the process of data buffer {name!r} has ended, and with it what it has given out"
    return process_ended(job, host, what, error)


def _packed(value: Any) -> Any:
    return Packer(inline=0).pack(value)
