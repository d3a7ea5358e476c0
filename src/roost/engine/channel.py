"""Channels pass values between the processes of a job, by reference."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from roost.engine.channels import channel_errors
from roost.engine.channels.channel_table import Batch, ChannelState, Handed, Key, PutDone, Wanted
from roost.engine.here import inline_here
from roost.engine.workers.call_log import FOR_CHANNEL, waiting

WAIT = 300.0  # seconds
AT_A_TIME = 1_000  # values that put_many sends to the channel's process at a time
Steps = Generator[Any, Any, Any]

# For each consumer, the takes of this process whose answers have not arrived. Its other takes do not acknowledge
# their items.
_unseen: dict[str, set[str]] = {}


class Channel:
    """The job's channel of this name. Any process of the job can open it; the first one creates it.

    An item goes to one process, which acknowledges it by taking the next, by `ack`, or by ending in order. If the
    process dies first, the channel hands the item out again. Without `capacity` the channel is as large as the object
    stores; with it, puts wait for room. Each method has a twin for coroutines: `async_put`, `async_get`, ...
    """

    def __init__(self, name: str, capacity: int | None = None) -> None:
        channel_errors.check_name(name, "channel")
        channel_errors.check_capacity(capacity)
        self.name = name
        self._side: Any = _side(name)
        if capacity is not None:
            actual = self._side.finish(self._one("limit", capacity))
            if actual != capacity:
                raise channel_errors.other_capacity(name, capacity, actual)

    # -- putting ---------------------------------------------------------------------------------------

    def put(
        self,
        value: Any,
        weight: float = 1,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        """Put a value into the channel; waits for room. `version` is the version of the weights that made the value."""
        self._side.finish(self._put([value], [weight], key, version, timeout, waits=False))

    async def async_put(
        self,
        value: Any,
        weight: float = 1,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        await self._side.async_finish(self._put([value], [weight], key, version, timeout, waits=True))

    def put_many(
        self,
        values: Iterable[Any],
        weights: Sequence[float] | None = None,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        """Put values in order, each as soon as there is room. The error's `done` counts those that went in."""
        self._side.finish(self._put(list(values), weights, key, version, timeout, waits=False))

    async def async_put_many(
        self,
        values: Iterable[Any],
        weights: Sequence[float] | None = None,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        await self._side.async_finish(self._put(list(values), weights, key, version, timeout, waits=True))

    def _put(
        self,
        values: Sequence[Any],
        weights: Sequence[float] | None,
        key: Key,
        version: int | None,
        timeout: float,
        waits: bool,
    ) -> Steps:
        channel_errors.check_put(len(values), key, weights, version, timeout)
        if not values:
            return
        if weights is not None and all(weight == 1 for weight in weights):
            weights = None
        side = self._side
        left = patience = side.patience(timeout, waits)
        for first in range(0, len(values), AT_A_TIME):
            part = slice(first, first + AT_A_TIME)
            contents = yield from side.stored(values[part])
            began, token = time.monotonic(), side.new_token()
            theirs = None if weights is None else weights[part]
            try:
                with waiting(FOR_CHANNEL):
                    decision = yield from side.put(token, left, key, theirs, version, contents)
            except BaseException:
                side.withdraw(token)
                raise
            side.answered(decision)
            left = max(0.0, left - (time.monotonic() - began))
            if not isinstance(decision, PutDone):
                decision = replace(decision, done=first + decision.done)
                note = "" if waits else side.note
                raise channel_errors.not_put(self.name, decision, len(values), patience, note)

    # -- taking ----------------------------------------------------------------------------------------

    def get(self, key: Key = None, timeout: float = WAIT) -> Any:
        """Take the next value of the key."""
        (value,) = self._side.finish(self._take(1, None, key, None, None, timeout, waits=False))
        return value

    async def async_get(self, key: Key = None, timeout: float = WAIT) -> Any:
        steps = self._take(1, None, key, None, None, timeout, waits=True)
        (value,) = await self._side.async_finish(steps)
        return value

    def get_batch(
        self,
        count: int | None = None,
        weight: float | None = None,
        key: Key = None,
        max_staleness: int | None = None,
        current: int | None = None,
        timeout: float = WAIT,
    ) -> Batch:
        """Take `count` values of the key, or as many as together have at least this weight; all or none.

        With `max_staleness=k, current=v`, the channel drops items of versions before v - k and counts them.
        A closed channel gives the items that are left.
        """
        steps = self._take(count, weight, key, max_staleness, current, timeout, waits=False)
        return self._side.finish(steps)

    async def async_get_batch(
        self,
        count: int | None = None,
        weight: float | None = None,
        key: Key = None,
        max_staleness: int | None = None,
        current: int | None = None,
        timeout: float = WAIT,
    ) -> Batch:
        steps = self._take(count, weight, key, max_staleness, current, timeout, waits=True)
        return await self._side.async_finish(steps)

    def _take(
        self,
        count: int | None,
        weight: float | None,
        key: Key,
        max_staleness: int | None,
        current: int | None,
        timeout: float,
        waits: bool,
    ) -> Steps:
        channel_errors.check_take(count, weight, key, max_staleness, current, timeout)
        oldest = None if current is None or max_staleness is None else current - max_staleness
        wanted = Wanted(key=key, count=count, weight=weight, oldest=oldest)
        side, token = self._side, self._side.new_token()
        consumer = yield from side.consumer()
        patience, unseen = side.patience(timeout, waits), _unseen.setdefault(consumer, set())
        others = tuple(unseen)
        unseen.add(token)
        try:
            with waiting(FOR_CHANNEL):
                decision = yield from side.take(token, patience, consumer, wanted, others)
            values = (yield from side.opened(decision)) if isinstance(decision, Handed) else None
        except BaseException:  # values that the caller does not see go back to the channel
            side.withdraw(token)
            raise
        finally:
            unseen.discard(token)
        if decision is None:
            raise channel_errors.counted_as_ended(self.name)
        if values is None:
            raise channel_errors.not_taken(self.name, decision, wanted, patience, "" if waits else side.note)
        return Batch(values, decision)

    def ack(self) -> None:
        """Acknowledge all items that this process has taken."""
        self._side.finish(self._ack())

    async def async_ack(self) -> None:
        await self._side.async_finish(self._ack())

    def _ack(self) -> Steps:
        consumer = yield from self._side.consumer()
        yield self._side.ask("acknowledge", consumer, tuple(_unseen.get(consumer, ())))

    # -- the channel itself ----------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse further puts. Takes go on until the channel is empty. May be called twice."""
        self._side.finish(self._one("close"))

    async def async_close(self) -> None:
        await self._side.async_finish(self._one("close"))

    def __len__(self) -> int:
        """The number of items that no process has taken."""
        return self._side.finish(self._one("size"))

    async def async_len(self) -> int:
        return await self._side.async_finish(self._one("size"))

    def state(self) -> ChannelState:
        """The items the channel holds, the items processes have taken, and counts of all items so far."""
        return self._side.finish(self._one("state"))

    async def async_state(self) -> ChannelState:
        return await self._side.async_finish(self._one("state"))

    def _one(self, method: str, *args: Any) -> Steps:
        return (yield self._side.ask(method, *args))

    def __bool__(self) -> bool:
        return True  # an empty channel is true too

    def __reduce__(self) -> tuple[Any, ...]:
        return Channel, (self.name,)

    def __repr__(self) -> str:
        return f"<channel {self.name}>"


def _side(name: str) -> Any:
    inline = inline_here()
    if inline is not None:
        return inline.channel(name)
    from roost.engine.job.ray_channel import open_ray_channel  # inline programs do without Ray

    return open_ray_channel(name)
