"""How planning grows with the cluster, from 8 to 16,384 nodes of 8 accelerators.

The job puts actor and rollout on every accelerator and four env processes on each of the first half. Every
size runs in its own process. Times are ratios: against a plain loop that builds one small record for each
process, measured beside it, and against the time for 64 nodes.

    python benchmarks/plan_scale.py            # the table
    python benchmarks/plan_scale.py --check    # also fail when 1,024 nodes cost too much
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SIZES = (8, 64, 256, 1024, 4096, 16384)
REFERENCE, CHECKED = 64, 1024
MAX_SECONDS, MAX_GROWTH, MAX_MIB = 0.5, 20, 150


@dataclass(frozen=True)
class Record:
    rank: int
    node: int
    device: int


def job(nodes: int) -> dict[str, Any]:
    accelerators = 8 * nodes
    half = accelerators // 2
    rules = {"actor,rollout": f"0-{accelerators - 1}", "env": f"0-{half - 1}:0-{4 * half - 1}"}
    return {"cluster": {"num_nodes": nodes, "component_placement": rules}}


def baseline(processes: int) -> list[Record]:
    return [Record(rank, rank // 8, rank % 8) for rank in range(processes)]


def best(run: Callable[[], Any], times: int) -> float:
    durations = []
    for _ in range(times):
        gc.collect()
        start = time.process_time()  # of this process alone: others may be busy
        run()
        durations.append(time.process_time() - start)
    return min(durations)


def resident_mib() -> float:
    import psutil

    return float(psutil.Process().memory_info().rss) / 2**20


def measure(nodes: int) -> dict[str, float]:
    """One size, in this process: memory first, while nothing has been planned yet."""
    import roost

    inventory = roost.Inventory.uniform(nodes, 8)
    roost.plan(job(1), roost.Inventory.uniform(1, 8))  # imports and caches are not what is measured
    gc.collect()
    before = resident_mib()
    planned = roost.plan(job(nodes), inventory)
    extra = resident_mib() - before
    processes = sum(part.world_size for part in planned.components.values())
    del planned
    times = 7 if nodes <= 1024 else 3
    return {
        "nodes": nodes,
        "processes": processes,
        "seconds": best(lambda: roost.plan(job(nodes), inventory), times),
        "baseline": best(lambda: baseline(processes), times),
        "mib": extra,
    }


def measured_apart(nodes: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", str(nodes)], check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def in_rounds(sizes: tuple[int, ...], rounds: int) -> list[dict[str, float]]:
    """The best of each size, in rounds over all of them: a slow moment of the machine meets every size."""
    measured = [[measured_apart(nodes) for nodes in sizes] for _ in range(rounds)]
    return [min(of_size, key=lambda result: result["seconds"]) for of_size in zip(*measured, strict=True)]


def report(results: list[dict[str, float]]) -> None:
    reference = next(result["seconds"] for result in results if result["nodes"] == REFERENCE)
    print("  nodes  accelerators  processes  x loop  x 64 nodes  ns/process  extra MiB")
    for result in results:
        print(
            f"{result['nodes']:7,.0f}  {8 * result['nodes']:12,.0f}  {result['processes']:9,.0f}"
            f"  {result['seconds'] / result['baseline']:6.1f}  {result['seconds'] / reference:10.2f}"
            f"  {1e9 * result['seconds'] / result['processes']:10,.0f}  {result['mib']:9.1f}"
        )


def failures(results: list[dict[str, float]]) -> list[str]:
    by_size = {result["nodes"]: result for result in results}
    checked, reference = by_size[CHECKED], by_size[REFERENCE]
    growth = checked["seconds"] / reference["seconds"]
    limits = [
        (checked["seconds"] < MAX_SECONDS, f"{checked['seconds']:.2f} s, should be below {MAX_SECONDS} s"),
        (growth <= MAX_GROWTH, f"{growth:.1f} times {REFERENCE} nodes, should be at most {MAX_GROWTH}"),
        (checked["mib"] < MAX_MIB, f"{checked['mib']:.0f} MiB, should be below {MAX_MIB} MiB"),
    ]
    return [f"{CHECKED} nodes: {text}" for fine, text in limits if not fine]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help=f"fail when {CHECKED} nodes cost too much")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    results = in_rounds((REFERENCE, CHECKED), 3) if options.check else in_rounds(SIZES, 1)
    report(results)
    problems = failures(results)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
