"""Waits for the restarts of a group in a process that did not launch it: its job's managers know of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from roost.engine.events import Event
from roost.engine.job.managers import WorkerManager
from roost.engine.job_snapshot import LOOK_WITHIN
from roost.errors import WorkerError

if TYPE_CHECKING:
    from roost.engine.ray_backend.ray_workers import RayWorkers

LOOK_EVERY = 0.2  # seconds


def wait_until_recovered(workers: RayWorkers, timeout: float) -> tuple[bool, str]:
    """Whether every restart is over in time, and why the group was given up, if it was. Takes over new processes."""
    deadline = time.monotonic() + timeout
    manager = WorkerManager.get_proxy(workers.job)
    while True:
        found = manager.get_group(workers.name)
        if found is None:
            raise WorkerError(code="RE116", what=f"group {workers.name!r} was shut down")
        workers.refresh(found)
        dead = [one.pid for one in workers.current(LOOK_WITHIN) if one.state == "dead"]
        events = [event for event in manager.get_events() if event.component == workers.name]
        if not dead:
            return True, ""
        if is_settled(events, dead):
            given_up = [event for event in events if event.action == "given up"]
            return True, given_up[-1].detail if given_up else ""
        if time.monotonic() > deadline:
            return False, ""
        time.sleep(LOOK_EVERY)


def is_settled(events: Iterable[Event], dead: Iterable[int]) -> bool:
    """Whether nothing more will be done about these processes, by the history of their group."""
    waiting, known, restarting = set(dead), set[int](), set[int | None]()
    for event in events:
        known.update(pid for pid in waiting if f"pid {pid} " in event.detail)
        if event.action == "restarting":
            restarting.add(event.rank)
        elif event.action == "restarted" and event.rank is not None:
            restarting.discard(event.rank)
        elif event.action in ("restarted", "given up"):
            restarting.clear()
    return known == waiting and not restarting
