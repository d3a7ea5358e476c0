"""Locks of the inline mode. Nothing else runs while one waits, so nobody does."""

from __future__ import annotations

import time
from collections.abc import Sequence

from roost.engine.locks.lock_table import Decision, Device, Holding, LockTable
from roost.engine.processes.owner import Owner, Process, in_words, this_process


class InlineLocks:
    def __init__(self, table: LockTable, node: str) -> None:
        self.node, self._table = node, table

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision:
        """At once or not at all. Ranks are told apart as if they were processes."""
        me = this_process()
        owner = Owner(process=Process(pid=me.pid, started=me.started, elsewhere=in_words()), who=in_words())
        now = time.monotonic()
        (decision,) = self._table.request(owner, devices, now, now, hold_for)
        return decision

    def release(self, owner: Owner, fence: int) -> None:
        self._table.release(owner, fence, time.monotonic())

    def holding(self, device: Device) -> tuple[Holding, float] | None:
        found = self._table.holding(device)
        return None if found is None else (found, time.monotonic() - found.since)
