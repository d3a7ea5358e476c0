"""What watching costs: calls and launches with and without it, and 64 idle workers beside 64 plain Ray actors.

python benchmarks/watching.py [calls] [idle] [WORKERS]
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import ray

import roost
from roost.engine.ray_backend import worker_host
from roost.engine.ray_backend.job_watch import JobWatch
from roost.engine.ray_backend.ray_workers import RayWorkers

os.environ.setdefault("ROOST_FORKED_WORKERS", "0")  # processes start as on other clusters

NUMBERS = [argument for argument in sys.argv[1:] if argument.isdecimal()]
PARTS = [argument for argument in sys.argv[1:] if not argument.isdecimal()] or ["calls", "idle"]
WORKERS = int(NUMBERS[0]) if NUMBERS else 64
ROUNDS, CALLS, CALLED = 6, 300, 16
SECONDS, SETTLE = 30.0, 5.0


class Idle(roost.Worker):
    def nothing(self) -> None:
        pass

    def pid(self) -> int:
        return os.getpid()

    def parent(self) -> int:
        return os.getppid()


class Unwatched(Idle):
    """A worker without heartbeats."""

    def __init__(self) -> None:
        super().__init__()
        worker_host._beat = lambda *_: None  # type: ignore[assignment]  # its thread ends at once


def launched(cluster: roost.Cluster, count: int, worker: type[roost.Worker] = Idle) -> Any:
    strategy = roost.NodePlacementStrategy([0] * count)
    return worker.create_group().launch(cluster, strategy, name="idle")


def started_unwatched(workers: RayWorkers, handles: Any, reports: Any) -> None:
    """In place of `RayWorkers.started`: no agent is told of the processes, so none opens their logs or waits for them."""
    assert workers.start is not None
    workers.accept(handles, reports, {rank: workers.start.generations[rank] for rank in handles})


@contextmanager
def unwatched() -> Iterator[None]:
    """Neither the driver nor the agents watch what is launched meanwhile."""
    cover, started = JobWatch.cover, RayWorkers.started
    JobWatch.cover, RayWorkers.started = lambda *_: None, started_unwatched  # type: ignore[method-assign]
    try:
        yield
    finally:
        JobWatch.cover, RayWorkers.started = cover, started  # type: ignore[method-assign]


def one_round(cluster: roost.Cluster, watched: bool) -> tuple[float, ...]:
    """Seconds of a launch and of a call on all workers, and processor seconds of all processes in them."""
    with nullcontext() if watched else unwatched():
        used, began = everyone(), time.perf_counter()
        group = launched(cluster, CALLED, Idle if watched else Unwatched)
        launch = time.perf_counter() - began
        work = sum(seconds - used.get(pid, 0.0) for pid, seconds in everyone().items())
    with group:
        times, used = [], everyone()
        for _ in range(CALLS):
            began = time.perf_counter()
            group.nothing().wait(timeout=60)
            times.append(time.perf_counter() - began)
        called = sum(seconds - used.get(pid, 0.0) for pid, seconds in everyone().items()) / CALLS
    return launch, work, statistics.median(times), called


class Plain:
    """What Ray alone costs: an actor that nobody calls."""

    def pid(self) -> int:
        return os.getpid()


def cpu_of(pid: int) -> float:
    """Seconds that a process has used, to the nanosecond."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:  # noqa: PTH123
                total += int(file.read().split()[0])
        except OSError:  # the thread has just ended
            continue
    return total / 1e9


def everyone() -> dict[int, float]:
    """Processor seconds of this process and of all below it: the embedded Ray is one of its children."""
    found: dict[int, float] = {}
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            found[pid] = cpu_of(pid)
            waiting += children_of(pid)
        except OSError:  # it has just ended
            continue
    return found


def children_of(pid: int) -> list[int]:
    """Of all its threads."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
            found += [int(child) for child in file.read().split()]
    return found


def idle_cost(cluster: roost.Cluster) -> None:
    """What idle workers cost, beside as many actors of Ray alone, which are as idle at the same time."""
    plain = [ray.remote(num_cpus=0)(Plain).remote() for _ in range(WORKERS)]
    with launched(cluster, WORKERS) as group:
        parts = {
            "plain": ray.get([actor.pid.remote() for actor in plain], timeout=600),
            "workers": group.pid().wait(timeout=600),
            "driver": [os.getpid()],
        }
        raylet = group.parent().wait(timeout=60)[0]
        parts["own"] = [pid for pid in children_of(raylet) if is_of_roost(pid)]
        time.sleep(SETTLE)
        before = {name: sum(map(cpu_of, pids)) for name, pids in parts.items()}
        time.sleep(SECONDS)
        used = {name: 100 * (sum(map(cpu_of, pids)) - before[name]) / SECONDS for name, pids in parts.items()}
    one = used["plain"] / WORKERS
    print(
        f"{WORKERS} idle workers: {used['workers']:.1f} % of a core, as many plain Ray actors {used['plain']:.1f} %; "
        f"agent and managers {used['own']:.1f} %, as many plain actors {one * len(parts['own']):.1f} %; "
        f"driver {used['driver']:.1f} %; in all, roost adds "
        f"{used['workers'] - used['plain'] + used['own'] + used['driver']:.1f} % of a core"
    )


def is_of_roost(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123
        title = file.read()
    return title.startswith("ray::") and ("Manager" in title or "NodeAgent" in title)


def calls_and_launches(cluster: roost.Cluster) -> None:
    one_round(cluster, watched=True)  # starts Ray's processes
    found: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    for number in range(ROUNDS):
        for watched in (True, False) if number % 2 else (False, True):
            found[watched].append(one_round(cluster, watched))
    launch, call = f"launch of {CALLED} workers", f"a call on {CALLED} workers"
    for index, what in enumerate(
        (launch, f"processor time of a {launch}", call, f"processor time of {call}")
    ):
        on, off = ([one[index] for one in found[watched]] for watched in (True, False))
        print(
            f"{what}: {1000 * min(on):.2f} ms watched, {1000 * min(off):.2f} ms not; ratio of the best "
            f"{min(on) / min(off):.3f}, of the medians {statistics.median(on) / statistics.median(off):.3f}"
        )


def main() -> None:
    for part, measure in (("calls", calls_and_launches), ("idle", idle_cost)):
        if part in PARTS:
            with roost.embedded("1x0") as address, roost.Cluster(num_nodes=1, address=address) as cluster:
                measure(cluster)
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
