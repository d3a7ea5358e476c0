"""What goes into a channel and comes out of it: items, requests, and the decisions about them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Token = Hashable  # names a request
Consumer = Hashable  # names a process that takes items
Key = str | int | None


class Item(NamedTuple):  # thousands are made and sent in a second: much cheaper than a dataclass
    number: int
    content: Any
    key: Key = None
    weight: float = 1
    version: int | None = None
    redelivered: int = 0  # processes that took it and died


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request of a take: a number of items, or items that together have a weight."""

    key: Key = None
    count: int | None = 1
    weight: float | None = None
    oldest: int | None = None  # items of an earlier version are dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """The items and waiting requests of a channel. Items that a waiting taker has collected count as held."""

    held: dict[Key, int]
    taken: dict[Any, int]  # items that processes have taken and not acknowledged
    capacity: int | None
    closed: bool
    waiting_puts: int
    waiting_takes: int
    put: int  # since the channel was made
    acknowledged: int
    redelivered: int
    too_old: int
    lost: int  # with the node that held them

    @property
    def size(self) -> int:
        return sum(self.held.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PutDone:
    token: Token
    held: int  # items in the channel then


@dataclass(frozen=True, slots=True, kw_only=True)
class PutLate:
    """No room in time. The first `done` items are in the channel, the others are not."""

    token: Token
    done: int
    state: ChannelState


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRefused:
    """The channel is closed. The first `done` items went in before it closed."""

    token: Token
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    token: Token
    items: tuple[Item, ...]
    too_old: int  # items that this take has dropped

    def __reduce__(self) -> tuple[Any, ...]:
        # Six tuples are pickled four times as fast as hundreds of items.
        return _handed, (self.token, self.too_old, *zip(*self.items, strict=True))


def _handed(token: Token, too_old: int, *columns: Sequence[Any]) -> Handed:
    return Handed(token=token, items=tuple(map(Item._make, zip(*columns, strict=True))), too_old=too_old)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFacts:
    """The facts of an item besides its value."""

    key: Key
    weight: float
    version: int | None
    redelivered: int  # processes that took it and died before they acknowledged it


class Batch(list[Any]):
    """A list of values, with the facts of each, and the number of items that were too old."""

    def __init__(self, values: Iterable[Any], handed: Handed) -> None:
        super().__init__(values)
        self._facts = [item[2:] for item in handed.items]
        self.too_old = handed.too_old

    @property
    def facts(self) -> tuple[ItemFacts, ...]:
        return tuple(
            ItemFacts(key=key, weight=weight, version=version, redelivered=redelivered)
            for key, weight, version, redelivered in self._facts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeLate:
    """Not enough items in time. The items that the taker collected stay in the channel."""

    token: Token
    collected: int
    too_old: int
    state: ChannelState


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The channel is closed, and nothing of the key is left."""

    token: Token
    too_old: int
    state: ChannelState


Decision = PutDone | PutLate | PutRefused | Handed | TakeLate | Drained
