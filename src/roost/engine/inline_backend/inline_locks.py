"""Locks of the inline mode."""

from __future__ import annotations

import time
from collections.abc import Sequence

from roost.engine.locks.lock_table import Decision, Device, DeviceHold, LockTable
from roost.engine.processes.owner import Owner
from roost.engine.processes.process_facts import Process, this_process
from roost.engine.workers.worker_context import describe_this_process


class InlineLocks:
    def __init__(self, table: LockTable, node: str) -> None:
        self.node, self._table = node, table

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision:
        """Granted or refused at once: inline mode has one thread, so a wait could never end."""
        me, who = this_process(), describe_this_process()
        # All ranks run in one process; `elsewhere` tells them apart.
        owner = Owner(process=Process(pid=me.pid, started=me.started, elsewhere=who), who=who)
        now = time.monotonic()
        (decision,) = self._table.request(owner, devices, now, now, hold_for)
        return decision

    def release(self, owner: Owner, fence: int) -> None:
        self._table.release(owner, fence, time.monotonic())

    def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        found = self._table.hold_on(device)
        return None if found is None else (found, time.monotonic() - found.since)
