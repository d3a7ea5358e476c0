"""What a group call costs, against `ray.get` over plain actor handles in the same run.

    python benchmarks/calls.py [--calls 400] [--check]

A group and as many plain actors live side by side and are called in turn, one call at a time; which of the two is
called first changes every time. Medians are compared.
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
OVERLAPPING = 1_000
SMALL = (7, "step", 0.5)  # the three small arguments
AT_MOST = 1.05


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


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def ratio(on_group: Callable[[], object], on_handles: Callable[[], object], calls: int) -> float:
    """The median time of a call on the group, against the median time of a call on the plain handles."""
    times: dict[Callable[[], object], list[float]] = {on_group: [], on_handles: []}
    for number in range(-20, calls):  # the first few fill caches
        for call in (on_group, on_handles) if number % 2 else (on_handles, on_group):
            took = seconds(call)
            if number >= 0:
                times[call].append(took)
    return statistics.median(times[on_group]) / statistics.median(times[on_handles])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=400, help="of each kind, with and without arguments")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is out of bounds")
    arguments = parser.parse_args()
    with (
        roost.embedded(f"1x{WORKERS}") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
    ):
        group = Member.create_group().launch(cluster)
        handles = [ray.remote(num_cpus=0)(Plain).remote() for _ in range(WORKERS)]
        ratios = {
            "without arguments": ratio(
                lambda: group.ping().wait(),
                lambda: ray.get([handle.ping.remote() for handle in handles]),
                arguments.calls,
            ),
            "with 3 small arguments": ratio(
                lambda: group.step(*SMALL).wait(),
                lambda: ray.get([handle.step.remote(*SMALL) for handle in handles]),
                arguments.calls,
            ),
        }
        before = threading.active_count()
        results = [group.step(number, *SMALL[1:]) for number in range(OVERLAPPING)]
        during = threading.active_count()
        for number, result in enumerate(results):
            assert result.wait(timeout=120) == [number] * WORKERS
    for case, found in ratios.items():
        print(
            f"a call on {WORKERS} workers {case}: {found:.2f} times ray.get over the handles "
            f"(medians, {arguments.calls} calls of each)"
        )
    print(f"{OVERLAPPING} overlapping calls: {during - before} extra threads")
    fine = max(ratios.values()) <= AT_MOST and during <= before
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
