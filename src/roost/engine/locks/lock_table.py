"""The locks on a node's devices, as a state machine: events and the time go in, decisions come out.

All devices of a request are granted together or not at all, and a request never overtakes an earlier one for the
same device. So requests of processes that hold no lock cannot block each other forever. A request of a process
that already holds a lock is refused if it could deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roost.engine.processes.process_facts import Owner, Process

Device = int | str  # an accelerator by its number, other hardware by a name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHold:
    """Devices that an owner has locked."""

    owner: Owner
    devices: tuple[Device, ...]
    fence: int
    since: float
    until: float | None  # the time from which another request may take them

    def expired(self, now: float) -> bool:
        return self.until is not None and now >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A request that is not decided yet."""

    owner: Owner
    devices: tuple[Device, ...]
    deadline: float
    hold_for: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockGranted:
    owner: Owner
    devices: tuple[Device, ...]
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """The deadline passed. `holders` have the devices; `ahead` earlier requests wait for them too."""

    owner: Owner
    holders: tuple[DeviceHold, ...]
    ahead: int
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request would deadlock: its process holds the devices, or their holder waits for that process."""

    owner: Owner
    holder: DeviceHold
    mine: bool


Decision = LockGranted | TimedOut | Refused


class LockTable:
    """The locks of one node and job. Fencing numbers only grow."""

    def __init__(self) -> None:
        self._holds: dict[Device, DeviceHold] = {}
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
        """Ask for all of these devices. The decision comes now, or from a later event."""
        wanted = tuple(sorted(set(devices), key=lambda device: (isinstance(device, str), device)))
        waiting = Waiting(owner=owner, devices=wanted, deadline=deadline, hold_for=hold_for)
        refused = self._refusal(waiting)
        if refused is not None:
            return [refused]
        self._queue.append(waiting)
        return self.tick(now)

    def release(self, owner: Owner, fence: int, now: float) -> list[Decision]:
        """The owner releases its lock. A fencing number of another lock releases nothing."""
        self._drop(hold for hold in self.holds if hold.owner == owner and hold.fence == fence)
        return self.tick(now)

    def withdraw(self, owner: Owner, now: float) -> list[Decision]:
        """The owner gives up its request, whether it was granted or not."""
        self._queue = [waiting for waiting in self._queue if waiting.owner != owner]
        self._drop(hold for hold in self.holds if hold.owner == owner)
        return self.tick(now)

    def owner_died(self, process: Process, now: float) -> list[Decision]:
        """Free the locks of the process, and drop its requests."""
        self._queue = [waiting for waiting in self._queue if waiting.owner.process != process]
        self._drop(hold for hold in self.holds if hold.owner.process == process)
        return self.tick(now)

    def tick(self, now: float) -> list[Decision]:
        """Grant requests, first come first served, and time out those past their deadline."""
        decisions: list[Decision] = []
        queue, self._queue = self._queue, []
        for waiting in queue:
            holders = self._holders(waiting.devices)
            ahead = self._ahead(waiting)
            if not ahead and all(hold.expired(now) for hold in holders):
                decisions.append(self._grant(waiting, now))
            elif now >= waiting.deadline:
                decisions.append(
                    TimedOut(owner=waiting.owner, holders=tuple(holders), ahead=len(ahead), now=now)
                )
            else:
                self._queue.append(waiting)
        return decisions

    # -- state -----------------------------------------------------------------------------------------

    def hold_on(self, device: Device) -> DeviceHold | None:
        return self._holds.get(device)

    @property
    def holds(self) -> list[DeviceHold]:
        return self._holders(self._holds)

    @property
    def waiting(self) -> Sequence[Waiting]:
        return tuple(self._queue)

    @property
    def owners(self) -> list[Owner]:
        return [hold.owner for hold in self.holds] + [waiting.owner for waiting in self._queue]

    # -- rules -----------------------------------------------------------------------------------------

    def _holders(self, devices: Iterable[Device]) -> list[DeviceHold]:
        found = (self._holds[device] for device in devices if device in self._holds)
        return list({hold.fence: hold for hold in found}.values())

    def _ahead(self, waiting: Waiting) -> list[Waiting]:
        """The earlier requests for any of the devices.

        Leaves out requests that wait for this process: the two would deadlock.
        """
        earlier = [other for other in self._queue if not set(other.devices).isdisjoint(waiting.devices)]
        process = waiting.owner.process
        if not earlier or all(hold.owner.process != process for hold in self.holds):
            return earlier
        return [other for other in earlier if process not in self._awaited_by(other.owner.process)]

    def _grant(self, waiting: Waiting, now: float) -> LockGranted:
        self._drop(self._holders(waiting.devices))  # only expired locks are left on them
        self._fence += 1
        hold = DeviceHold(
            owner=waiting.owner,
            devices=waiting.devices,
            fence=self._fence,
            since=now,
            until=None if waiting.hold_for is None else now + waiting.hold_for,
        )
        self._holds.update(dict.fromkeys(waiting.devices, hold))
        return LockGranted(owner=waiting.owner, devices=waiting.devices, fence=self._fence)

    def _drop(self, holds: Iterable[DeviceHold]) -> None:
        for hold in list(holds):
            for device in hold.devices:
                del self._holds[device]

    def _refusal(self, asking: Waiting) -> Refused | None:
        """The refusal of a request that would deadlock; None for any other."""
        process = asking.owner.process
        if all(hold.owner.process != process for hold in self.holds):
            return None  # no request waits for a process that holds no lock
        for hold in self._holders(asking.devices):
            mine = hold.owner.process == process
            waits_for_me = hold.until is None and process in self._awaited_by(hold.owner.process)
            if mine or waits_for_me:
                return Refused(owner=asking.owner, holder=hold, mine=mine)
        return None

    def _awaited_by(self, process: Process | None) -> set[Process | None]:
        """The processes that must release a lock before this process gets the devices it waits for.

        Holders of locks that expire are not among them, because waiting for those ends.
        """
        found: set[Process | None] = set()
        look_at = [process]
        while look_at:
            one = look_at.pop()
            for place, waiting in enumerate(self._queue):
                if waiting.owner.process != one:
                    continue
                wanted = set(waiting.devices)
                blocking = {h.owner.process for h in self._holders(wanted) if h.until is None}
                blocking |= {w.owner.process for w in self._queue[:place] if wanted & set(w.devices)}
                look_at += blocking - found
                found |= blocking
        return found
