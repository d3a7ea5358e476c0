"""Who has which device, as a state machine: events and the time go in, decisions come out.

All devices of a request are granted together or not at all, and nobody overtakes an earlier request for one of
its devices. So requests of processes that hold nothing cannot block each other for good; one of a process that
already holds something is refused where it would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roost.engine.processes.owner import Owner, Process

Device = int | str  # an accelerator by its number, other hardware by a name


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Devices that somebody has, and since when."""

    owner: Owner
    devices: tuple[Device, ...]
    fence: int
    since: float
    until: float | None  # from then on the next one who asks may have them

    def expired(self, now: float) -> bool:
        return self.until is not None and now >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Devices that somebody wants."""

    owner: Owner
    devices: tuple[Device, ...]
    deadline: float
    hold_for: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    owner: Owner
    devices: tuple[Device, ...]
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """Not had in time: who has the devices, and how many have waited for them longer."""

    owner: Owner
    holders: tuple[Holding, ...]
    ahead: int
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Would wait for itself: it holds these devices, or they are held by who waits for it."""

    owner: Owner
    holder: Holding
    mine: bool


Decision = Granted | TimedOut | Refused


class LockTable:
    """The locks of one node and job. Fencing numbers only grow."""

    def __init__(self) -> None:
        self._holdings: dict[Device, Holding] = {}
        self._queue: list[Waiting] = []
        self._fence = 0

    # -- events ----------------------------------------------------------------------------------------

    def request(
        self,
        owner: Owner,
        devices: Iterable[Device],
        now: float,
        deadline: float,
        hold_for: float | None = None,
    ) -> list[Decision]:
        """Ask for all of these devices. They come at once, by a later event, or not before the deadline."""
        wanted = tuple(sorted(set(devices), key=lambda device: (isinstance(device, str), device)))
        waiting = Waiting(owner=owner, devices=wanted, deadline=deadline, hold_for=hold_for)
        refused = self._refusal(waiting)
        if refused is not None:
            return [refused]
        self._queue.append(waiting)
        return self.tick(now)

    def release(self, owner: Owner, fence: int, now: float) -> list[Decision]:
        """The owner is done. A number that is not the lock's releases nothing."""
        self._drop(one for one in self.holdings if one.owner == owner and one.fence == fence)
        return self.tick(now)

    def withdraw(self, owner: Owner, now: float) -> list[Decision]:
        """The owner no longer wants what it asked for, granted or not."""
        self._queue = [waiting for waiting in self._queue if waiting.owner != owner]
        self._drop(one for one in self.holdings if one.owner == owner)
        return self.tick(now)

    def owner_died(self, process: Process, now: float) -> list[Decision]:
        """What the process had is free, and what it waited for is not kept for it."""
        self._queue = [waiting for waiting in self._queue if waiting.owner.process != process]
        self._drop(one for one in self.holdings if one.owner.process == process)
        return self.tick(now)

    def tick(self, now: float) -> list[Decision]:
        """Grant what can be granted, first come first served, and give up on what is too late."""
        decisions: list[Decision] = []
        queue, self._queue = self._queue, []
        for waiting in queue:
            holders = self._holders(waiting.devices)
            ahead = self._ahead(waiting)
            if not ahead and all(one.expired(now) for one in holders):
                decisions.append(self._grant(waiting, now))
            elif now >= waiting.deadline:
                decisions.append(
                    TimedOut(owner=waiting.owner, holders=tuple(holders), ahead=len(ahead), now=now)
                )
            else:
                self._queue.append(waiting)
        return decisions

    # -- questions -------------------------------------------------------------------------------------

    def holding(self, device: Device) -> Holding | None:
        return self._holdings.get(device)

    @property
    def holdings(self) -> list[Holding]:
        return list({holding.fence: holding for holding in self._holdings.values()}.values())

    @property
    def waiting(self) -> Sequence[Waiting]:
        return tuple(self._queue)

    @property
    def owners(self) -> list[Owner]:
        return [one.owner for one in self.holdings] + [one.owner for one in self._queue]

    # -- how it is done --------------------------------------------------------------------------------

    def _holders(self, devices: Iterable[Device]) -> list[Holding]:
        found = (self._holdings[device] for device in devices if device in self._holdings)
        return list({holding.fence: holding for holding in found}.values())

    def _ahead(self, waiting: Waiting) -> list[Waiting]:
        """The earlier requests for any of the devices. One that waits for this very process is not: it
        would wait for ever if the process, which has what it wants, had to wait for it."""
        earlier = [other for other in self._queue if not set(other.devices).isdisjoint(waiting.devices)]
        process = waiting.owner.process
        if not earlier or all(holding.owner.process != process for holding in self.holdings):
            return earlier
        return [other for other in earlier if process not in self._awaited_by(other.owner.process)]

    def _grant(self, waiting: Waiting, now: float) -> Granted:
        self._drop(self._holders(waiting.devices))  # they have had their time
        self._fence += 1
        holding = Holding(
            owner=waiting.owner,
            devices=waiting.devices,
            fence=self._fence,
            since=now,
            until=None if waiting.hold_for is None else now + waiting.hold_for,
        )
        self._holdings.update(dict.fromkeys(waiting.devices, holding))
        return Granted(owner=waiting.owner, devices=waiting.devices, fence=self._fence)

    def _drop(self, holdings: Iterable[Holding]) -> None:
        for holding in list(holdings):
            for device in holding.devices:
                del self._holdings[device]

    def _refusal(self, asking: Waiting) -> Refused | None:
        """A request that would wait for its own process, directly or through others."""
        process = asking.owner.process
        if all(holding.owner.process != process for holding in self.holdings):
            return None  # who holds nothing is waited for by nobody
        for holding in self._holders(asking.devices):
            mine = holding.owner.process == process
            waits_for_me = holding.until is None and process in self._awaited_by(holding.owner.process)
            if mine or waits_for_me:
                return Refused(owner=asking.owner, holder=holding, mine=mine)
        return None

    def _awaited_by(self, process: Process | None) -> set[Process | None]:
        """Those who must release something before the process gets what it waits for, if it waits.

        A lock that ends by itself keeps nobody waiting for ever, so its holder is not among them.
        """
        found: set[Process | None] = set()
        look_at = [process]
        while look_at:
            one = look_at.pop()
            for place, waiting in enumerate(self._queue):
                if waiting.owner.process != one:
                    continue
                wanted = set(waiting.devices)
                next_ones = {h.owner.process for h in self._holders(wanted) if h.until is None}
                next_ones |= {w.owner.process for w in self._queue[:place] if wanted & set(w.devices)}
                look_at += next_ones - found
                found |= next_ones
        return found
