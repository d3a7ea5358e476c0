"""Runs a channel's table with a clock. Waiting requests do not block other requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from roost.engine.channels.channel_table import ChannelTable
from roost.engine.channels.channel_values import (
    ChannelState,
    Decision,
    Drained,
    Key,
    PutLate,
    TakeLate,
    Token,
    Wanted,
)
from roost.engine.channels.undecided import Undecided, remember


class ChannelDesk:
    def __init__(self) -> None:
        self._table = ChannelTable()
        self._undecided = Undecided()
        self._names: dict[str, str] = {}  # of consumers, for messages
        self._ended: dict[str, None] = {}  # consumers

    async def put(
        self,
        token: Token,
        timeout: float,
        key: Key,
        weights: Sequence[float] | None,
        version: int | None,
        contents: Sequence[Any],
    ) -> Decision | None:
        """Wait at most `timeout` seconds until all items are in the channel. None if it was withdrawn before."""
        if self._undecided.was_withdrawn(token):
            return None
        now = time.monotonic()
        return await self._decided(
            token,
            self._table.put(token, contents, now, now + timeout, key=key, weights=weights, version=version),
            timeout,
        )

    async def take(
        self, token: Token, timeout: float, consumer: str, wanted: Wanted, unseen: Collection[Token] = ()
    ) -> Decision | None:
        """Wait for the items, at most `timeout` seconds. None if the request was withdrawn or its consumer ended.

        `unseen` are takes of the same consumer whose answers it has not seen.
        """
        if self._undecided.was_withdrawn(token) or consumer in self._ended:
            return None
        now = time.monotonic()
        return await self._decided(
            token, self._table.take(token, consumer, wanted, now, now + timeout, unseen), timeout
        )

    async def acknowledge(self, consumer: str, unseen: Collection[Token] = ()) -> None:
        self._tell(self._table.acknowledge(consumer, time.monotonic(), unseen))

    async def lose(self, token: Token, numbers: Sequence[int]) -> None:
        """Report items of a take that its consumer cannot fetch."""
        self._tell(self._table.lose(token, numbers, time.monotonic()))

    async def withdraw(self, token: Token) -> None:
        """Drop a request whose process no longer waits. A large request may arrive after its withdrawal."""
        self._undecided.withdraw(token)
        self._undecided.drop(token)
        self._tell(self._table.withdraw(token, time.monotonic()))

    async def close(self) -> None:
        self._tell(self._table.close(time.monotonic()))

    async def limit(self, capacity: int) -> int | None:
        """Set the capacity if none is set. Returns the capacity."""
        self._table.limit(capacity)
        return self._table.capacity

    async def size(self) -> int:
        return len(self._table)

    async def state(self) -> ChannelState:
        return self.look()

    def look(self) -> ChannelState:
        return self._named(self._table.state())

    async def join(self, consumer: str, who: str) -> None:
        """Register a consumer's name, for messages."""
        self._names[consumer] = who

    def consumer_ended(self, consumer: str, in_order: bool) -> None:
        """Acknowledge the items of a consumer that ended in order. Hand out those of any other again."""
        remember(self._ended, consumer)  # one of its takes may still arrive
        self._names.pop(consumer, None)
        event = self._table.consumer_left if in_order else self._table.consumer_died
        self._tell(event(consumer, time.monotonic()))

    async def _decided(self, token: Token, decisions: Sequence[Decision], timeout: float) -> Decision:
        mine = None
        for decision in decisions:
            if decision.token == token:
                mine = decision
            else:
                self._tell([decision])
        if mine is not None:
            return self._with_names(mine)
        answer = self._undecided.add(token)
        timer = asyncio.get_running_loop().call_later(timeout, self._tick)
        try:
            return self._with_names(await answer)
        finally:
            timer.cancel()

    def _tick(self) -> None:
        self._tell(self._table.tick(time.monotonic()))

    def _tell(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._undecided.decide(decision.token, decision)

    def _with_names(self, decision: Decision) -> Decision:
        if isinstance(decision, (PutLate, TakeLate, Drained)):
            return replace(decision, state=self._named(decision.state))
        return decision

    def _named(self, state: ChannelState) -> ChannelState:
        return replace(
            state,
            taken={self._names.get(consumer, consumer): count for consumer, count in state.taken.items()},
        )


def at_once(asked: Coroutine[Any, Any, Any]) -> Any:
    """The value of a coroutine that never suspends."""
    try:
        asked.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a request without patience has waited")
