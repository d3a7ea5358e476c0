"""How long it takes to learn a pool's order, against one probe actor for each accelerator in the same run.

    python benchmarks/pool_order.py [--on 4x8] [--rounds 3] [--check]

Both reserve every accelerator, find out which one each position is, and sort. The baseline has a bundle and an
actor for each, as programs do that schedule themselves. roost's pools have a bundle and a probe for each node; its
placement groups (`apart`) have a bundle for each accelerator too, which one process on each node measures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import roost
from roost.engine.reservation import measuring

os.environ.setdefault("ROOST_FORKED_WORKERS", "0")  # processes start as on other clusters


@ray.remote(num_cpus=0, num_gpus=1)
class Probe:
    def where(self) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), int(ray.get_gpu_ids()[0])


def one_probe_each(count: int) -> float:
    began = time.perf_counter()
    group = placement_group([{"GPU": 1}] * count, strategy="PACK")
    ray.get(group.ready())
    probes = [
        Probe.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote()
        for index in range(count)
    ]
    sorted(ray.get([probe.where.remote() for probe in probes]))
    seconds = time.perf_counter() - began
    for probe in probes:
        ray.kill(probe)
    remove_placement_group(group)
    return seconds


def with_roost(cluster: roost.Cluster, count: int, apart: bool = False) -> float:
    began = time.perf_counter()
    pool = cluster.pool(roost.Layout(actor_num_gpus_per_node=count, rollout_num_gpus=0), apart=apart)
    seconds = time.perf_counter() - began
    assert len(pool) == count
    pool.release()
    return seconds


def settle(count: int) -> None:
    """Wait until everything was given back, so that the next round is not disturbed."""
    deadline = time.monotonic() + 60
    while ray.available_resources().get("GPU", 0) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", default="4x8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="fail when a ratio is out of bounds")
    arguments = parser.parse_args()
    nodes, on_each = map(int, arguments.on.split("x"))
    count = nodes * on_each
    probes = 0
    ask = measuring._probe

    def counted(*about: object) -> object:
        nonlocal probes
        probes += 1
        return ask(*about)

    measuring._probe = counted
    times: dict[str, list[float]] = {"each": [], "roost": [], "apart": []}
    with (
        roost.embedded(arguments.on) as address,
        roost.Cluster(num_nodes=nodes, address=address, job="bench") as cluster,
    ):
        settle(count)  # the managers' processes start meanwhile; benchmarks/connect.py measures them
        first = with_roost(cluster, count)  # no probe's process is there to be reused
        settle(count)
        probes = 0
        for _ in range(arguments.rounds):
            times["each"].append(one_probe_each(count))
            settle(count)
            times["apart"].append(with_roost(cluster, count, apart=True))
            settle(count)
            probes = 0
            times["roost"].append(with_roost(cluster, count))
            settle(count)
    each = statistics.median(times["each"])
    ratio, cold = each / statistics.median(times["roost"]), each / first
    apart = each / statistics.median(times["apart"])
    print(
        f"{arguments.on}: {ratio:.1f} times faster than one probe actor per accelerator, {cold:.1f} the first time, "
        f"{apart:.1f} with a bundle per accelerator (medians, {arguments.rounds} rounds)"
    )
    print(f"probes started for a pool: {probes} for {nodes} nodes, {count} accelerators")
    return 0 if (min(ratio, apart) >= 4 and probes == nodes) or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
