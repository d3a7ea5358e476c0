"""What watching costs: calls and launches with and without it, and 64 idle workers beside 64 plain Ray actors.

python benchmarks/watching.py [WORKERS]
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

import ray

import roost
from roost.engine.ray_backend import job_watch

ARGUMENTS = [argument for argument in sys.argv[1:] if argument.isdecimal()]
WORKERS = int(ARGUMENTS[0]) if ARGUMENTS else 64
ROUNDS, CALLS, CALLED = 4, 200, 16
SECONDS, SETTLE = 30.0, 5.0


class Idle(roost.Worker):
    def nothing(self) -> None:
        pass

    def pid(self) -> int:
        return os.getpid()

    def parent(self) -> int:
        return os.getppid()


def launched(cluster: roost.Cluster, count: int) -> Any:
    strategy = roost.NodePlacementStrategy([0] * count)
    return Idle.create_group().launch(cluster, strategy, name="idle")


def one_round(cluster: roost.Cluster, watched: bool) -> tuple[float, float]:
    """Seconds of a launch, and of a call on all workers."""
    cover = job_watch.JobWatch.cover
    if not watched:
        job_watch.JobWatch.cover = lambda *_: None  # type: ignore[method-assign]
    try:
        began = time.perf_counter()
        group = launched(cluster, CALLED)
        launch = time.perf_counter() - began
    finally:
        job_watch.JobWatch.cover = cover  # type: ignore[method-assign]
    with group:
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            group.nothing().wait(timeout=60)
            times.append(time.perf_counter() - began)
    return launch, statistics.median(times)


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


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        return [int(child) for child in file.read().split()]


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


def main() -> None:
    with roost.embedded("1x0") as address, roost.Cluster(num_nodes=1, address=address) as cluster:
        one_round(cluster, watched=True)  # starts Ray's processes
        found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for number in range(ROUNDS):
            for watched in (True, False) if number % 2 else (False, True):
                found[watched].append(one_round(cluster, watched))
        for index, what in enumerate((f"launch of {CALLED} workers", f"a call on {CALLED} workers")):
            on, off = (min(one[index] for one in found[watched]) for watched in (True, False))
            print(f"{what}: {1000 * on:.2f} ms watched, {1000 * off:.2f} ms not; ratio {on / off:.3f}")
    with roost.embedded("1x0") as address, roost.Cluster(num_nodes=1, address=address) as cluster:
        idle_cost(cluster)
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
