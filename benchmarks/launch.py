"""How long a group takes to start, against raw Ray actors started in the same run.

    python benchmarks/launch.py [--rounds 5] [--check]

Baselines: actors that are given nothing at all, and actors that get their environment the usual way, through
`runtime_env`. Rounds are interleaved, so that a noisy machine disturbs all three alike; medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import ray

import roost

CASES = (("1x16", 16), ("4x8", 32))


class Plain:
    def ping(self) -> int:
        return 1


class Member(roost.Worker):
    def ping(self) -> int:
        return 1


def raw(count: int, with_env: bool) -> float:
    began = time.perf_counter()
    actor = ray.remote(num_cpus=0)(Plain)
    handles = [
        (
            actor.options(runtime_env={"env_vars": {"RANK": str(rank), "CUDA_VISIBLE_DEVICES": str(rank)}})
            if with_env
            else actor
        ).remote()
        for rank in range(count)
    ]
    ray.get([handle.ping.remote() for handle in handles])
    seconds = time.perf_counter() - began
    for handle in handles:
        ray.kill(handle)
    return seconds


def with_roost(cluster: roost.Cluster, count: int) -> float:
    began = time.perf_counter()
    group = Member.create_group().launch(cluster, roost.PackedPlacementStrategy(0, count - 1))
    group.ping().wait(timeout=120)
    seconds = time.perf_counter() - began
    group.shutdown()
    return seconds


def settle(count: int) -> None:
    """Wait until the workers of the last round are gone, so that the next one is not disturbed."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        used = ray.cluster_resources().get("GPU", 0) - ray.available_resources().get("GPU", 0)
        if used <= count:
            break
        time.sleep(0.1)
    time.sleep(2.0)


def measure(shape: str, count: int, rounds: int) -> dict[str, float]:
    with roost.embedded(shape) as address:
        nodes = int(shape.split("x")[0])
        with roost.Cluster(num_nodes=nodes, address=address, job="bench") as cluster:
            ways: dict[str, Callable[[], float]] = {
                "raw": lambda: raw(count, with_env=False),
                "raw with env_vars": lambda: raw(count, with_env=True),
                "roost": lambda: with_roost(cluster, count),
            }
            with_roost(cluster, count)  # reserves, and fills caches for everyone
            settle(count)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, way in ways.items():
                    times[name].append(way())
                    settle(count)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail when a ratio is out of bounds")
    arguments = parser.parse_args()
    fine = True
    print(
        f"{'cluster':>8} {'workers':>8} {'roost / raw':>12} {'env_vars / roost':>17}   (medians, {arguments.rounds} rounds)"
    )
    for shape, count in CASES:
        median = measure(shape, count, arguments.rounds)
        against_raw = median["roost"] / median["raw"]
        against_env = median["raw with env_vars"] / median["roost"]
        print(f"{shape:>8} {count:>8} {against_raw:>12.2f} {against_env:>17.2f}", flush=True)
        fine = fine and against_raw <= 1.25 and against_env >= 1.5
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
