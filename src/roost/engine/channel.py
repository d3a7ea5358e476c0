"""Channels pass values between the processes of a job, by reference."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from roost.engine.channels import channel_errors
from roost.engine.channels.channel_desk import at_once
from roost.engine.channels.channel_values import Batch, ChannelState, Handed, Key, PutDone, Wanted
from roost.engine.here import inline_here
from roost.engine.workers.call_log import FOR_CHANNEL, waiting
from roost.errors import RoostError

WAIT = 300.0  # seconds
AT_A_TIME = 1_000  # values that put_many sends to the channel's process at a time

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
        self._side: Any = _side(name)  # whose coroutines never suspend: they block, or need not wait
        self._async_side: Any = self._side.for_coroutines()
        self._held = 0  # items in the channel, by its last answer
        if capacity is not None:
            actual = at_once(self._side.ask("limit", capacity))
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
        at_once(self._put(self._side, [value], [weight], key, version, timeout))

    async def async_put(
        self,
        value: Any,
        weight: float = 1,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        await self._put(self._async_side, [value], [weight], key, version, timeout)

    def put_many(
        self,
        values: Iterable[Any],
        weights: Sequence[float] | None = None,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        """Put values in order, each as soon as there is room. The error's `done` counts those that went in."""
        several = channel_errors.checked_values(values)
        at_once(self._put(self._side, several, weights, key, version, timeout))

    async def async_put_many(
        self,
        values: Iterable[Any],
        weights: Sequence[float] | None = None,
        key: Key = None,
        version: int | None = None,
        timeout: float = WAIT,
    ) -> None:
        several = channel_errors.checked_values(values)
        await self._put(self._async_side, several, weights, key, version, timeout)

    async def _put(
        self,
        side: Any,
        values: Sequence[Any],
        weights: Sequence[float] | None,
        key: Key,
        version: int | None,
        timeout: float,
    ) -> None:
        channel_errors.check_put(len(values), key, weights, version, timeout)
        if not values:
            return
        key, version = channel_errors.plain(key), channel_errors.plain(version)
        if weights is not None and all(weight == 1 for weight in weights):
            weights = None
        left = patience = side.patience(timeout)
        for first in range(0, len(values), AT_A_TIME):
            part = slice(first, first + AT_A_TIME)
            token = side.new_token()
            theirs = None if weights is None else weights[part]
            try:
                contents = await side.stored(values[part], self._held)
                began = time.monotonic()
                with waiting(FOR_CHANNEL):
                    decision = await side.put(token, left, key, theirs, version, contents)
            except BaseException as error:
                side.withdraw(token)
                if first and isinstance(error, RoostError):
                    raise channel_errors.put_in_part(error, first, len(values)) from error.__cause__
                raise
            left = max(0.0, left - (time.monotonic() - began))
            if not isinstance(decision, PutDone):
                decision = replace(decision, done=first + decision.done)
                raise channel_errors.not_put(self.name, decision, len(values), patience, side.note)
            self._held = decision.held

    # -- taking ----------------------------------------------------------------------------------------

    def get(self, key: Key = None, timeout: float = WAIT) -> Any:
        """Take the next value of the key."""
        (value,) = at_once(self._take(self._side, 1, None, key, None, None, timeout))
        return value

    async def async_get(self, key: Key = None, timeout: float = WAIT) -> Any:
        (value,) = await self._take(self._async_side, 1, None, key, None, None, timeout)
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
        return at_once(self._take(self._side, count, weight, key, max_staleness, current, timeout))

    async def async_get_batch(
        self,
        count: int | None = None,
        weight: float | None = None,
        key: Key = None,
        max_staleness: int | None = None,
        current: int | None = None,
        timeout: float = WAIT,
    ) -> Batch:
        return await self._take(self._async_side, count, weight, key, max_staleness, current, timeout)

    async def _take(
        self,
        side: Any,
        count: int | None,
        weight: float | None,
        key: Key,
        max_staleness: int | None,
        current: int | None,
        timeout: float,
    ) -> Batch:
        channel_errors.check_take(count, weight, key, max_staleness, current, timeout)
        oldest = None if current is None or max_staleness is None else current - max_staleness
        wanted = Wanted(key=channel_errors.plain(key), count=count, weight=weight, oldest=oldest)
        token = side.new_token()
        consumer = await side.consumer()
        patience, unseen = side.patience(timeout), _unseen.setdefault(consumer, set())
        others = tuple(unseen)
        unseen.add(token)
        try:
            with waiting(FOR_CHANNEL):
                decision = await side.take(token, patience, consumer, wanted, others)
            values = await side.opened(decision) if isinstance(decision, Handed) else None
        except BaseException:  # values that the caller does not see go back to the channel
            side.withdraw(token)
            raise
        finally:
            unseen.discard(token)
        if decision is None:
            raise channel_errors.counted_as_ended(self.name)
        if values is None:
            raise channel_errors.not_taken(self.name, decision, wanted, patience, side.note)
        return Batch(values, decision)

    def ack(self) -> None:
        """Acknowledge all items that this process has taken."""
        at_once(self._ack(self._side))

    async def async_ack(self) -> None:
        await self._ack(self._async_side)

    async def _ack(self, side: Any) -> None:
        consumer = await side.consumer()
        await side.ask("acknowledge", consumer, tuple(_unseen.get(consumer, ())))

    # -- the channel itself ----------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse further puts. Takes go on until the channel is empty. May be called twice."""
        at_once(self._side.ask("close"))

    async def async_close(self) -> None:
        await self._async_side.ask("close")

    def __len__(self) -> int:
        """The number of items that no process has taken."""
        return at_once(self._side.ask("size"))

    async def async_len(self) -> int:
        return await self._async_side.ask("size")

    def state(self) -> ChannelState:
        """The items the channel holds, the items processes have taken, and counts of all items so far."""
        return at_once(self._side.ask("state"))

    async def async_state(self) -> ChannelState:
        return await self._async_side.ask("state")

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
