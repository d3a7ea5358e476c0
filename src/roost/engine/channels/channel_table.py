"""The items of a channel, its waiting requests, and the items each consumer has taken: a state machine.

Every event takes the time of the event and returns the decisions that follow from it, each with the token of the
request it decides. The table never looks at the content of an item.

Items of one key form a queue. The first waiting taker of a key collects items as they come, so a batch may be
larger than the capacity, and an item that a taker waits for needs no room. Items are numbered; a queue is always in
the order of the numbers, also after items came back from a process that died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isclose
from operator import itemgetter
from typing import Any

from roost.engine.channels.channel_values import (
    ChannelState,
    Consumer,
    Decision,
    Drained,
    Handed,
    Item,
    Key,
    PutDone,
    PutLate,
    PutRefused,
    TakeLate,
    Token,
    Wanted,
)

# A sum of weights that lacks no more than this part counts as complete: 0.1 ten times is not 1.0.
ROUNDING = 1e-12


@dataclass(slots=True, kw_only=True, eq=False)
class _Putter:
    token: Token
    key: Key
    arrival: int
    items: deque[Item]
    done: int = 0
    deadline: float


@dataclass(slots=True, kw_only=True, eq=False)
class _Taker:
    token: Token
    consumer: Consumer
    wanted: Wanted
    deadline: float
    items: list[Item] = field(default_factory=list)
    weight: float = 0
    too_old: int = 0

    @property
    def lacking(self) -> int:
        """How many items to give the taker next; 0 if it has enough. By weight, it takes one at a time."""
        if self.wanted.count is not None:
            return max(0, self.wanted.count - len(self.items))
        weight = self.wanted.weight or 0
        return 0 if self.weight >= weight or isclose(self.weight, weight, rel_tol=ROUNDING) else 1


class ChannelTable:
    def __init__(self, capacity: int | None = None) -> None:
        self.capacity, self.closed = capacity, False
        self._queues: dict[Key, deque[Item]] = {}
        self._queued = 0
        self._putters: dict[Key, deque[_Putter]] = {}
        self._takers: dict[Key, deque[_Taker]] = {}
        self._taken: dict[Consumer, dict[Token, Sequence[Item]]] = {}  # items by consumer and take
        self._soonest = float("inf")  # no waiting request has an earlier deadline
        self._arrivals = self._put = self._acknowledged = self._redelivered = self._too_old = self._lost = 0
        self._decisions: list[Decision] = []

    # -- events ----------------------------------------------------------------------------------------

    def put(
        self,
        token: Token,
        contents: Sequence[Any],
        now: float,
        deadline: float,
        *,
        key: Key = None,
        weights: Sequence[float] | None = None,
        version: int | None = None,
    ) -> list[Decision]:
        """Put items of one key into the channel, in order; each goes in as soon as there is room."""
        if self.closed:
            return [PutRefused(token=token, done=0)]
        numbers = range(self._arrivals + 1, self._arrivals + len(contents) + 1)
        self._arrivals += len(contents)
        columns = (
            numbers,
            contents,
            repeat(key),
            repeat(1) if weights is None else weights,
            repeat(version),
            repeat(0),
        )
        items = deque(map(Item._make, zip(*columns)))  # noqa: B905
        putter = _Putter(token=token, key=key, arrival=self._arrivals, items=items, deadline=deadline)
        self._putters.setdefault(key, deque()).append(putter)
        self._soonest = min(self._soonest, deadline)
        self._settle([key])
        return self.tick(now)

    def take(
        self,
        token: Token,
        consumer: Consumer,
        wanted: Wanted,
        now: float,
        deadline: float,
        unseen: Collection[Token] = (),
    ) -> list[Decision]:
        """Take items. This acknowledges the consumer's earlier items, except those of `unseen` takes."""
        self._acknowledge(consumer, unseen)
        taker = _Taker(token=token, consumer=consumer, wanted=wanted, deadline=deadline)
        self._takers.setdefault(wanted.key, deque()).append(taker)
        self._soonest = min(self._soonest, deadline)
        self._settle(list(self._takers) if self.closed else [wanted.key])
        return self.tick(now)

    def acknowledge(self, consumer: Consumer, now: float, unseen: Collection[Token] = ()) -> list[Decision]:
        """Acknowledge the consumer's items, except those of `unseen` takes."""
        self._acknowledge(consumer, unseen)
        self._settle(list(self._takers))  # takers of a closed channel wait for this
        return self.tick(now)

    def consumer_left(self, consumer: Consumer, now: float) -> list[Decision]:
        """Acknowledge the items of a consumer that ended in order, and drop its requests."""
        self._drop_takers(lambda taker: taker.consumer == consumer)
        return self.acknowledge(consumer, now)

    def consumer_died(self, consumer: Consumer, now: float) -> list[Decision]:
        """Hand out again the unacknowledged items of a consumer that died, and drop its requests."""
        taken = self._taken.pop(consumer, {}).values()
        lost = [item._replace(redelivered=item.redelivered + 1) for items in taken for item in items]
        self._redelivered += len(lost)
        self._give_back(lost)
        return self.consumer_left(consumer, now)

    def lose(self, token: Token, numbers: Collection[int], now: float) -> list[Decision]:
        """Count these items of a take as lost: the consumer cannot fetch them. The take's other items go back."""
        for taken in self._taken.values():
            items = taken.get(token, ())
            taken[token] = [item for item in items if item.number not in numbers]
            self._lost += len(items) - len(taken[token])
        return self.withdraw(token, now)

    def withdraw(self, token: Token, now: float) -> list[Decision]:
        """Drop a request whose process no longer waits. Items that the request was handed go back."""
        for taken in self._taken.values():
            self._give_back(taken.pop(token, ()))
        self._drop_takers(lambda taker: taker.token == token)
        self._drop_putters(lambda putter: putter.token == token)
        self._settle(list(self._takers))
        return self.tick(now)

    def close(self, now: float) -> list[Decision]:
        """Refuse further puts. The items in the channel can still be taken."""
        self.closed = True
        for putter in [one for putters in self._putters.values() for one in putters]:
            self._decisions.append(PutRefused(token=putter.token, done=putter.done))
        self._putters.clear()
        self._settle(list(self._takers))
        return self.tick(now)

    def limit(self, capacity: int) -> bool:
        """Set the capacity if none is set. Returns whether the channel has this capacity."""
        self.capacity = capacity if self.capacity is None else self.capacity
        return self.capacity == capacity

    def tick(self, now: float) -> list[Decision]:
        """Decide the requests whose deadline has passed. Returns every decision not returned yet."""
        while now >= self._soonest:
            self._expire(now)
            self._settle(list(self._takers))  # other takers get the items that late takers collected
        decisions, self._decisions = self._decisions, []
        return decisions

    # -- state -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._queued + sum(len(taker.items) for taker in self._waiting_takers())

    def state(self) -> ChannelState:
        held = {key: len(queue) for key, queue in self._queues.items()}
        for taker in self._waiting_takers():
            if taker.items:
                held[taker.wanted.key] = held.get(taker.wanted.key, 0) + len(taker.items)
        return ChannelState(
            held=held,
            taken={consumer: _count(taken) for consumer, taken in self._taken.items() if taken},
            capacity=self.capacity,
            closed=self.closed,
            waiting_puts=sum(map(len, self._putters.values())),
            waiting_takes=sum(map(len, self._takers.values())),
            put=self._put,
            acknowledged=self._acknowledged,
            redelivered=self._redelivered,
            too_old=self._too_old,
            lost=self._lost,
        )

    # -- rules -----------------------------------------------------------------------------------------

    def _settle(self, keys: Iterable[Key]) -> None:
        """Serve the takers of these keys, then fill the room that is left with items of waiting putters."""
        for key in keys:
            self._serve(key)
        while self._putters and (self.capacity is None or self._queued < self.capacity):
            putter = min((putters[0] for putters in self._putters.values()), key=lambda one: one.arrival)
            room = len(putter.items) if self.capacity is None else self.capacity - self._queued
            items = self._next_of(putter, room)
            if items:  # no taker waits for these, or `_serve` would have taken them
                self._queues.setdefault(putter.key, deque()).extend(items)
                self._queued += len(items)

    def _serve(self, key: Key) -> None:
        takers = self._takers.get(key)
        while takers:
            taker = takers[0]
            while taker.lacking and (found := self._next_items(key, taker.lacking)):
                oldest = taker.wanted.oldest
                if oldest is not None:
                    fresh = [item for item in found if item.version is None or item.version >= oldest]
                    taker.too_old += len(found) - len(fresh)
                    self._too_old += len(found) - len(fresh)
                    found = fresh
                taker.items += found
                taker.weight += sum(item.weight for item in found) if taker.wanted.count is None else 0
            rest = self.closed and taker.items
            if not taker.lacking or rest:
                items = tuple(sorted(taker.items, key=itemgetter(0)))  # by number: some may have come back
                self._taken.setdefault(taker.consumer, {})[taker.token] = items
                self._decisions.append(Handed(token=taker.token, items=items, too_old=taker.too_old))
            elif self.closed and not self._may_come_back(key, taker.consumer):
                self._decisions.append(Drained(token=taker.token, too_old=taker.too_old, state=self.state()))
            else:
                return
            takers.popleft()
            if not takers:
                del self._takers[key]

    def _next_items(self, key: Key, most: int) -> list[Item]:
        """The next items of the key, from its queue or, past the capacity, from its putters."""
        queue = self._queues.get(key)
        if queue:
            items = _first(queue, most)
            self._queued -= len(items)
            if not queue:
                del self._queues[key]
            return items
        while key in self._putters:
            items = self._next_of(self._putters[key][0], most)
            if items:
                return items
        return []

    def _next_of(self, putter: _Putter, most: int) -> list[Item]:
        """Take up to `most` items from a key's first putter. Decides the put when all are in."""
        items = _first(putter.items, most)
        putter.done += len(items)
        self._put += len(items)
        if not putter.items:
            self._decisions.append(PutDone(token=putter.token, held=self._queued + len(items)))
            self._putters[putter.key].popleft()
            if not self._putters[putter.key]:
                del self._putters[putter.key]
        return items

    def _may_come_back(self, key: Key, consumer: Consumer) -> bool:
        """Whether another process holds items of the key that would come back if it died."""
        return any(
            item.key == key
            for holder, taken in self._taken.items()
            if holder != consumer
            for items in taken.values()
            for item in items
        )

    def _acknowledge(self, consumer: Consumer, unseen: Collection[Token]) -> None:
        taken = self._taken.pop(consumer, {})
        kept = {token: items for token, items in taken.items() if token in unseen}
        if kept:
            self._taken[consumer] = kept
        self._acknowledged += _count(taken) - _count(kept)

    def _give_back(self, items: Sequence[Item]) -> None:
        """Return items to their queues in the order of their numbers, even past the capacity."""
        for key in {item.key for item in items}:
            merged = [item for item in items if item.key == key] + list(self._queues.get(key, ()))
            self._queues[key] = deque(sorted(merged, key=lambda item: item.number))
        self._queued += len(items)

    def _drop_putters(self, which: Callable[[_Putter], bool]) -> list[_Putter]:
        dropped = [putter for putters in self._putters.values() for putter in putters if which(putter)]
        for putter in dropped:
            self._putters[putter.key].remove(putter)
            if not self._putters[putter.key]:
                del self._putters[putter.key]
        return dropped

    def _drop_takers(self, which: Callable[[_Taker], bool]) -> list[_Taker]:
        dropped = [taker for taker in self._waiting_takers() if which(taker)]
        for taker in dropped:
            key = taker.wanted.key
            self._takers[key].remove(taker)
            if not self._takers[key]:
                del self._takers[key]
            self._give_back(taker.items)
        return dropped

    def _expire(self, now: float) -> None:
        late = self._drop_takers(lambda taker: now >= taker.deadline)
        late_putters = self._drop_putters(lambda putter: now >= putter.deadline)
        if late or late_putters:
            state = self.state()
        for taker in late:
            self._decisions.append(
                TakeLate(token=taker.token, collected=len(taker.items), too_old=taker.too_old, state=state)
            )
        for putter in late_putters:
            self._decisions.append(PutLate(token=putter.token, done=putter.done, state=state))
        waiting = [taker.deadline for taker in self._waiting_takers()]
        waiting += [putter.deadline for putters in self._putters.values() for putter in putters]
        self._soonest = min(waiting, default=float("inf"))

    def _waiting_takers(self) -> Iterator[_Taker]:
        for takers in list(self._takers.values()):
            yield from list(takers)


def _first(items: deque[Item], most: int) -> list[Item]:
    """Remove and return the first items, at most `most`."""
    return [items.popleft() for _ in range(min(most, len(items)))]


def _count(taken: Mapping[Token, Sequence[Item]]) -> int:
    return sum(map(len, taken.values()))
