"""A lock on devices of a node: it has an owner, ends with the owner, and carries a fencing number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from roost.engine.locks.lock_errors import devices_in_words, not_granted, outdated
from roost.engine.locks.lock_table import Decision, Device, DeviceHold, LockGranted
from roost.engine.processes.process_facts import Owner
from roost.engine.workers.call_log import FOR_LOCK, waiting
from roost.errors import ConfigurationError, shown


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
    raise not_granted(decision, devices, locks.node, timeout)


def check_on(locks: Locks, device: Device, fence: int) -> None:
    """Raise unless `fence` is the number of the lock held on the device now."""
    found = locks.hold_on(device)
    if found is not None and found[0].fence == fence:
        return
    raise outdated(device, fence, found, locks.node)


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
