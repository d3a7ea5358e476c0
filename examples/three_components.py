"""Run a small job of three components on an embedded cluster, and compare where each process is with the plan.

python examples/three_components.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import roost

CONFIG = Path(__file__).with_name("three_components.yaml")


class Component(roost.Worker):
    """Stands for real training or inference code: it only says where it is."""

    def where(self) -> tuple[int, str]:
        return int(os.environ["CLUSTER_NODE_RANK"]), os.environ["CUDA_VISIBLE_DEVICES"]

    def work(self, step: int) -> str:
        return f"{self.group_name}:{self.rank} did step {step}"


def main() -> int:
    plan = roost.plan(CONFIG, roost.Inventory.parse("2x4"))
    print(
        "starting a Ray of 2 nodes x 4 virtual accelerators on this machine ...", file=sys.stderr, flush=True
    )
    with roost.embedded("2x4") as address, roost.Cluster(num_nodes=2, address=address, job="demo") as cluster:
        placement = roost.ComponentPlacement(CONFIG, cluster)
        groups = {
            name: Component.create_group().launch(cluster, placement.get_strategy(name), name=name)
            for name in placement.components
        }
        wrong = 0
        print(f"{'process':<12}{'planned':<24}{'running':<24}")
        for name, group in groups.items():
            planned = plan.components[name].placements
            for place, (node, devices) in zip(planned, group.where().wait(timeout=60), strict=True):
                wanted = (place.cluster_node_rank, ",".join(place.visible_accelerators))
                verdict = "" if wanted == (node, devices) else "  <- differs"
                wrong += wanted != (node, devices)
                print(
                    f"{name}:{place.rank:<{11 - len(name)}}"
                    f"{f'node {wanted[0]}, devices {wanted[1]}':<24}{f'node {node}, devices {devices}':<24}{verdict}"
                )
        steps = [group.work(0) for group in groups.values()]  # all at once
        done = sum(len(step.wait(timeout=60)) for step in steps)
        print(f"\n{done} processes did a step; {wrong} are not where they were planned")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
