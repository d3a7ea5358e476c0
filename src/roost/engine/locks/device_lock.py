"""A lock on devices of a node: it has an owner, ends with the owner, and carries a fencing number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from roost.config.ranks import ranges
from roost.engine.locks.lock_table import Decision, Device, DeviceHold, LockGranted, Refused, TimedOut
from roost.engine.processes.process_facts import Owner
from roost.engine.workers.call_log import FOR_LOCK, waiting
from roost.errors import ClusterError, ConfigurationError, counted, shown


class Locks(Protocol):
    """The locks of one node."""

    node: str  # for messages

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision: ...

    def release(self, owner: Owner, fence: int) -> None: ...

    def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        """The lock that is held on the device, and for how many seconds."""
        ...


class DeviceLock(AbstractContextManager["DeviceLock"]):
    """The devices this process has locked, until it releases them, ends, or `hold_for` seconds have passed."""

    def __init__(self, locks: Locks, granted: LockGranted) -> None:
        self._locks, self._owner = locks, granted.owner
        self.devices, self.fence = granted.devices, granted.fence

    @property
    def held(self) -> bool:
        """Whether this lock is still held. Asks the node's agent."""
        found = self._locks.hold_on(self.devices[0])
        return found is not None and found[0].fence == self.fence

    def check(self) -> None:
        """Raise if this lock is no longer held."""
        check_on(self._locks, self.devices[0], self.fence)

    def release(self) -> None:
        """Release the devices. May be called twice, and after the lock was lost."""
        self._locks.release(self._owner, self.fence)

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<lock {self.fence} of {devices_in_words(self.devices)} on {self._locks.node}>"


def lock_on(
    locks: Locks, devices: Sequence[Device], timeout: float = 60.0, hold_for: float | None = None
) -> DeviceLock:
    """Lock the devices, or raise. `devices` are numbers and names that `NodeDevices.identify` returned."""
    _check_seconds("timeout", timeout)
    if hold_for is not None:
        _check_seconds("hold_for", hold_for)
    with waiting(FOR_LOCK):
        decision = locks.acquire(devices, float(timeout), hold_for)
    if isinstance(decision, LockGranted):
        return DeviceLock(locks, decision)
    raise _not_granted(decision, devices, locks.node, timeout)


def check_on(locks: Locks, device: Device, fence: int) -> None:
    """Raise unless `fence` is the number of the lock held on the device now."""
    found = locks.hold_on(device)
    if found is not None and found[0].fence == fence:
        return
    raise _outdated(device, fence, found, locks.node)


def check_number(fence: Any) -> None:
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise ConfigurationError(
            code="RC104",
            what=f"a fencing number is a whole number, not {shown(fence)}",
            remedy="pass the `fence` of a lock",
        )


def _check_seconds(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ConfigurationError(code="RC104", what=f"{name} is a number of seconds, not {shown(value)}")


def _not_granted(
    decision: TimedOut | Refused, devices: Sequence[Device], node: str, timeout: float
) -> ClusterError:
    if isinstance(decision, Refused):
        holder = decision.holder
        what = f"this process already holds {devices_in_words(holder.devices)} of {node}, with number {holder.fence}"
        why, remedy = "it would wait for itself", "release that lock first, or use it"
        if not decision.mine:
            what = f"waiting for {devices_in_words(devices)} of {node} would never end"
            why = f"{holder.owner.who} holds {devices_in_words(holder.devices)} and waits for what this process holds"
            remedy = "ask for all devices at once"
        return ClusterError(code="RE118", what=what, why=why, remedy=remedy)
    reasons = [
        f"{one.owner.who} has held {devices_in_words(one.devices)} for {decision.now - one.since:.1f} s"
        for one in decision.holders
    ]
    if decision.ahead:
        reasons.append(f"{counted(decision.ahead, 'other process')} asked before")
    return ClusterError(
        code="RE118",
        what=f"{devices_in_words(devices)} of {node} could not be locked within {timeout:g} s",
        why="; ".join(reasons),
        remedy="wait longer, or let holders lock with hold_for=...",
    )


def _outdated(device: Device, fence: int, found: tuple[DeviceHold, float] | None, node: str) -> ClusterError:
    why = "nobody holds it now"
    if found is not None:
        why = f"{found[0].owner.who} has held it with number {found[0].fence} for {found[1]:.1f} s"
    return ClusterError(
        code="RE119",
        what=f"{fence} is not the number of the lock on {devices_in_words([device])} of {node}",
        why=why,
        remedy="whoever shows this number has lost its turn: lock the device again",
    )


def unwatched(node: str) -> ClusterError:
    return ClusterError(
        code="RE114",
        what=f"a process of another node cannot lock devices of {node}",
        why="nobody there would notice its end, and the lock would stay",
        remedy="lock them in a worker of that node, or in the driver",
    )


def devices_in_words(devices: Sequence[Device]) -> str:
    numbers = [device for device in devices if isinstance(device, int)]
    parts = [str(device) for device in devices if isinstance(device, str)]
    if numbers:
        parts.insert(0, f"accelerator{'s' * (len(numbers) > 1)} {ranges(numbers)}")
    return ", ".join(parts)
