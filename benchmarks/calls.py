"""What a group call costs, against `ray.get` over plain actor handles in the same run.

python benchmarks/calls.py [--rounds 30] [--check]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable

import ray

import roost

WORKERS = 16
BATCH = 20
OVERLAPPING = 1_000


class Plain:
    def step(self, x: int) -> int:
        return x


class Member(roost.Worker):
    def step(self, x: int) -> int:
        return x


def per_call(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(BATCH):
        call()
    return (time.perf_counter() - began) / BATCH


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--check", action="store_true", help="fail when a ratio is out of bounds")
    arguments = parser.parse_args()
    with (
        roost.embedded(f"1x{WORKERS}") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
    ):
        group = Member.create_group().launch(cluster)
        handles = [ray.remote(num_cpus=0)(Plain).remote() for _ in range(WORKERS)]
        ways: dict[str, Callable[[], object]] = {
            "ray.get": lambda: ray.get([handle.step.remote(1) for handle in handles]),
            "roost": lambda: group.step(1).wait(),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            per_call(way)
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                times[name].append(per_call(way))
        before = threading.active_count()
        results = [group.step(number) for number in range(OVERLAPPING)]
        during = threading.active_count()
        for number, result in enumerate(results):
            assert result.wait(timeout=120) == [number] * WORKERS
    ratio = statistics.median(times["roost"]) / statistics.median(times["ray.get"])
    print(
        f"a call on {WORKERS} workers: {ratio:.2f} times ray.get over the handles (medians, {arguments.rounds} rounds)"
    )
    print(f"{OVERLAPPING} overlapping calls: {during - before} extra threads")
    fine = ratio <= 1.2 and during <= before
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
