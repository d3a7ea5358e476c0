"""The errors of locks: not granted, no longer held, or not allowed."""

from __future__ import annotations

from collections.abc import Sequence

from roost.config.ranks import ranges
from roost.engine.locks.lock_table import Device, DeviceHold, Refused, TimedOut
from roost.errors import ClusterError, counted


def not_granted(
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


def outdated(device: Device, fence: int, found: tuple[DeviceHold, float] | None, node: str) -> ClusterError:
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
