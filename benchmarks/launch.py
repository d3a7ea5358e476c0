"""How long a group and a whole job take to start, against raw Ray actors started in the same run.

    python benchmarks/launch.py [--rounds 5] [--only group|job] [--check]

Baselines: actors that are given nothing at all, and, for a group, actors that get their environment the usual way,
through `runtime_env`. Rounds are interleaved, so that a noisy machine disturbs all ways alike; medians are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import ray

import roost

os.environ.setdefault("ROOST_FORKED_WORKERS", "0")  # processes start as on other clusters

GROUPS = (("1x16", 16), ("4x8", 32))
JOB_SHAPE, JOB_PROCESSES = "4x8", 32
JOB: dict[str, Any] = {
    "cluster": {
        "num_nodes": 4,
        "component_placement": {"actor": "0-7", "rollout": "8-15", "reward": "16-23", "env": "24-31"},
    }
}
JOB_COMPONENTS = tuple(JOB["cluster"]["component_placement"])


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


def job_with_roost(cluster: roost.Cluster, planning: list[float]) -> float:
    """From the plan on. How long the plan itself takes is put into `planning`."""
    began = time.perf_counter()
    plan = roost.plan(JOB, cluster)
    planning.append(time.perf_counter() - began)
    began = time.perf_counter()
    run = cluster.launch(plan, dict.fromkeys(plan.components, Member))
    for answers in [group.ping() for group in run.groups.values()]:
        answers.wait(timeout=120)
    seconds = time.perf_counter() - began
    run.shutdown()
    return seconds


def settle() -> None:
    """Wait until the workers of the last round are gone, so that the next one is not disturbed."""
    deadline = time.monotonic() + 60
    while workers_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2.0)


def workers_alive() -> int:
    """The processes that raw actors and workers live in, by the titles that Ray and roost give them."""
    titles = ("ray::Plain", "ray::Member", *(f"ray::{name}:" for name in JOB_COMPONENTS))
    alive = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            alive += " ".join(process.cmdline()).startswith(titles)
    return alive


def medians(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    ways["roost"]()  # fills caches for all ways
    settle()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        # Each way is the first of a round as often as the others.
        for name in [*ways][number % len(ways) :] + [*ways][: number % len(ways)]:
            times[name].append(ways[name]())
            settle()
    return {name: statistics.median(found) for name, found in times.items()}


@contextlib.contextmanager
def connected(shape: str) -> Iterator[roost.Cluster]:
    nodes = int(shape.split("x")[0])
    with (
        roost.embedded(shape) as address,
        roost.Cluster(num_nodes=nodes, address=address, job="bench") as cluster,
    ):
        yield cluster


def measure_group(shape: str, count: int, rounds: int) -> bool:
    with connected(shape) as cluster:
        median = medians(
            {
                "raw": lambda: raw(count, with_env=False),
                "raw with env_vars": lambda: raw(count, with_env=True),
                "roost": lambda: with_roost(cluster, count),
            },
            rounds,
        )
    against_raw = median["roost"] / median["raw"]
    against_env = median["raw with env_vars"] / median["roost"]
    print(f"{shape:>8} {count:>8} {against_raw:>12.2f} {against_env:>17.2f}", flush=True)
    return against_raw <= 1.25 and against_env >= 1.5


def measure_job(rounds: int) -> bool:
    planning: list[float] = []
    with connected(JOB_SHAPE) as cluster:
        median = medians(
            {
                "raw": lambda: raw(JOB_PROCESSES, with_env=False),
                "roost": lambda: job_with_roost(cluster, planning),
            },
            rounds,
        )
    against_raw = median["roost"] / median["raw"]
    share = statistics.median(planning) / median["roost"]
    print(
        f"a job of {len(JOB_COMPONENTS)} components and {JOB_PROCESSES} processes on {JOB_SHAPE}: "
        f"{against_raw:.2f} times raw actors, planning takes {share:.2%} of it (medians, {rounds} rounds)",
        flush=True,
    )
    return against_raw <= 1.15 and share < 0.01


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("group", "job"), help="measure only one of the two")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is out of bounds")
    arguments = parser.parse_args()
    fine = True
    if arguments.only != "job":
        print(
            f"{'cluster':>8} {'workers':>8} {'roost / raw':>12} {'env_vars / roost':>17}   "
            f"(medians, {arguments.rounds} rounds)"
        )
        for shape, count in GROUPS:
            fine = measure_group(shape, count, arguments.rounds) and fine
    if arguments.only != "group":
        fine = measure_job(arguments.rounds) and fine
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
