"""Assertions about a run and about this process. Each raises `AssertionError` that says what is wrong."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from roost.engine.health.machine_inspection import is_own
from roost.engine.processes import keeper
from roost.engine.processes.process_facts import raylet_of
from roost.engine.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The threads, descriptors and children of this process."""

    threads: int
    descriptors: int
    children: int

    @classmethod
    def now(cls) -> Footprint:
        return cls(
            threads=threading.active_count(),
            descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
            children=len(_children(os.getpid())),
        )


def assert_one_process_per_rank(run: Run, within: float = 30.0) -> None:
    """Every rank has exactly one living process, and no process has two ranks."""

    def problem() -> str:
        status = list(run.status())
        dead = [
            f"{one.component}:{one.rank} is {one.state}"
            for one in status
            if one.state not in ("idle", "busy")
        ]
        if dead:
            return ", ".join(dead)
        pids = [one.pid for one in status]
        if len(set(pids)) < len(pids):
            return f"ranks share processes: {pids}"
        nodes = {raylet for pid in pids if pid and (raylet := raylet_of(pid)) is not None}
        workers = _workers_by_title(nodes)
        for one in status:
            # Ray gives a process this title at its first call.
            others = [pid for pid in workers.get(f"ray::{one.component}:{one.rank}", ()) if pid != one.pid]
            if others:
                return f"{one.component}:{one.rank} is pid {one.pid}, and there are {others}"
        return ""

    _hold(problem, within)


def assert_no_device_twice(run: Run) -> None:
    """The plan does not charge any accelerator more than once in total."""
    for device, uses in run.plan.occupancy.items():
        total = sum(run.plan.charges.get(device, {}).values())
        assert total <= 1.0001, f"{device} is charged {total:g} times, by {uses}"
    planned: dict[tuple[int | None, str], str] = {}  # by node and name of the accelerators that processes see
    for one in run.status():
        names = one.visible.split(",")
        if one.hardware != "accelerator" or len(names) != len(one.devices):  # it sees those of others too
            continue
        for number, name in zip(one.devices, names, strict=True):
            wanted = f"node {one.planned_node} device {number}"
            first = planned.setdefault((one.node, name), wanted)
            assert wanted == first, f"{wanted} and {first} are both {name} of node {one.node}"


def assert_no_growth(before: Footprint, allowed: int = 0, within: float = 30.0) -> None:
    """This process has no more threads, descriptors and children than before."""

    def problem() -> str:
        now = Footprint.now()
        grown = [
            f"{name} {getattr(before, name)} -> {getattr(now, name)}"
            for name in ("threads", "descriptors", "children")
            if getattr(now, name) > getattr(before, name) + allowed
        ]
        return ", ".join(grown)

    _hold(problem, within)


def assert_ended(pids: Iterable[int], within: float = 5.0) -> None:
    """None of these processes runs any more."""
    known = list(pids)

    def problem() -> str:
        left = [pid for pid in known if (found := keeper.status_of(pid)) is not None and not found.ended]
        return f"still running: {left}" if left else ""

    _hold(problem, within)


def _workers_by_title(nodes: Collection[int]) -> dict[str, list[int]]:
    """The workers of these Ray nodes, and this user's workers whose Ray node has ended, by group and rank."""
    found: dict[str, list[int]] = {}
    for pid in sorted(keeper.all_processes()):
        shown = keeper.contents(f"/proc/{pid}/cmdline").split(b"\0")[0].decode(errors="replace")
        status = keeper.status_of(pid) if shown.startswith("ray::") else None
        if status is None or status.ended:
            continue
        node = raylet_of(pid)
        if node not in nodes and (node is not None or not is_own(pid)):
            continue
        group, _, rank = shown.rpartition(":")  # the method that runs may follow the rank
        found.setdefault(f"{group}:{rank.partition('.')[0]}", []).append(pid)
    return found


def _children(pid: int) -> list[int]:
    if keeper.CHILDREN_LISTED:
        return keeper.listed_children(pid)
    return keeper.all_processes_by_parent().get(pid, [])


def _hold(problem: Callable[[], str], within: float) -> None:
    deadline = time.monotonic() + within
    while said := problem():
        assert time.monotonic() < deadline, f"after {within:g} s: {said}"
        time.sleep(0.05)
