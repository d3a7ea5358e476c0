"""The code of three_components.yaml. Its driver compares where each process is with the plan.

cd examples && roost launch three_components.yaml --on 2x4
"""

from __future__ import annotations

import os
from typing import Any

import roost


class Component(roost.Worker):
    """Stands for real training or inference code: it only says where it is."""

    def where(self) -> tuple[int, str]:
        return int(os.environ["CLUSTER_NODE_RANK"]), os.environ["CUDA_VISIBLE_DEVICES"]

    def generate(self, step: int) -> str:
        return f"sample {self.rank} of step {step}"

    def score(self, samples: list[str]) -> int:
        return len(samples)


def main(run: roost.Run, config: Any) -> int:
    wrong = 0
    print(f"{'process':<12}{'planned':<24}{'running':<24}")
    for name, group in run.groups.items():
        for place, (node, devices) in zip(group.placements, group.where().wait(timeout=60), strict=True):
            wanted = (place.cluster_node_rank, ",".join(place.visible_accelerators))
            verdict = "" if wanted == (node, devices) else "  <- differs"
            wrong += wanted != (node, devices)
            print(
                f"{name}:{place.rank:<{11 - len(name)}}"
                f"{f'node {wanted[0]}, devices {wanted[1]}':<24}{f'node {node}, devices {devices}':<24}{verdict}"
            )
    samples = run["rollout"].generate(0)  # nothing is waited for: the values go from process to process
    scores = run["reward"].score(samples).wait(timeout=60)
    print(
        f"\n{len(scores)} reward models scored {scores[0]} samples each; {wrong} processes are not where planned"
    )
    return 1 if wrong else 0
