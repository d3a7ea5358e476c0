"""What a group call costs, against `ray.get` over plain actor handles in the same run.

    python benchmarks/calls.py [--calls 400] [--check]

A group and as many plain actors live side by side and are called in turn, one call at a time; which of the two is
called first changes every time. Two equal sets of actors differ by some percent, depending on which was started
first, so the rounds start them in both orders. Each round compares medians; the mean of the rounds counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ray

import roost

WORKERS = 16
OVERLAPPING = 1_000
ROUNDS = 4
SMALL = (7, "step", 0.5)  # the three small arguments
AT_MOST = 1.05
Timed = Callable[[], object]


class Plain:
    def ping(self) -> int:
        return 1

    def step(self, number: int, name: str, share: float) -> int:
        return number


class Member(roost.Worker):
    def ping(self) -> int:
        return 1

    def step(self, number: int, name: str, share: float) -> int:
        return number


def seconds(call: Timed) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def start_group(cluster: roost.Cluster) -> roost.WorkerGroup:
    return Member.create_group().launch(cluster)


def start_handles() -> list[Any]:
    handles = [ray.remote(num_cpus=0)(Plain).remote() for _ in range(WORKERS)]
    ray.get([handle.ping.remote() for handle in handles])
    return handles


def measure(on_group: Timed, on_handles: Timed, calls: int) -> list[list[float]]:
    """The times of calls on the group, and of calls on the plain handles."""
    times: dict[Timed, list[float]] = {on_group: [], on_handles: []}
    for number in range(-20, calls):  # the first few fill caches
        for call in (on_group, on_handles) if number % 2 else (on_handles, on_group):
            took = seconds(call)
            if number >= 0:
                times[call].append(took)
    return list(times.values())


def cases(group: roost.WorkerGroup, handles: list[Any]) -> dict[str, tuple[Timed, Timed]]:
    return {
        "without arguments": (
            lambda: group.ping().wait(),
            lambda: ray.get([handle.ping.remote() for handle in handles]),
        ),
        "with 3 small arguments": (
            lambda: group.step(*SMALL).wait(),
            lambda: ray.get([handle.step.remote(*SMALL) for handle in handles]),
        ),
    }


def overlapping(group: roost.WorkerGroup) -> int:
    """How many threads a thousand calls that are not waited for add."""
    before = threading.active_count()
    results = [group.step(number, *SMALL[1:]) for number in range(OVERLAPPING)]
    during = threading.active_count()
    for number, result in enumerate(results):
        assert result.wait(timeout=120) == [number] * WORKERS
    return during - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1_600, help="of each kind, with and without arguments")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is out of bounds")
    arguments = parser.parse_args()
    found: dict[str, list[list[list[float]]]] = {}
    with (
        roost.embedded(f"1x{WORKERS}") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
    ):
        for number in range(ROUNDS):
            if number % 2:
                group, handles = start_group(cluster), start_handles()
            else:
                handles, group = start_handles(), start_group(cluster)
            for case, (on_group, on_handles) in cases(group, handles).items():
                found.setdefault(case, []).append(measure(on_group, on_handles, arguments.calls // ROUNDS))
            threads = overlapping(group)
            group.shutdown()
            for handle in handles:
                ray.kill(handle)
    ratios = {
        case: [statistics.median(on_group) / statistics.median(on_handles) for on_group, on_handles in rounds]
        for case, rounds in found.items()
    }
    for case, per_round in ratios.items():
        print(
            f"a call on {WORKERS} workers {case}: {statistics.mean(per_round):.3f} times ray.get over the handles "
            f"(medians of {arguments.calls // ROUNDS} calls of each in each of {ROUNDS} rounds: "
            f"{', '.join(f'{one:.2f}' for one in per_round)})"
        )
    print(f"{OVERLAPPING} overlapping calls: {threads} extra threads")
    fine = max(map(statistics.mean, ratios.values())) <= AT_MOST and threads <= 0
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
