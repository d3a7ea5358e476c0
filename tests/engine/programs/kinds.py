"""A small embedded Ray with a node of each maker."""

from __future__ import annotations

from crew import Reporter
from saying import say

import roost

NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
INVENTORY = roost.Inventory.from_dict(
    {
        "nodes": [
            {"cpus": 1, "accelerators": {"type": "nvidia_gpu", "count": 2}},
            {"cpus": 1, "accelerators": {"type": "amd_gpu", "count": 2}},
            {"cpus": 1, "accelerators": {"type": "ascend_npu", "count": 3}},
            {"cpus": 1, "accelerators": 0},
        ]
    }
)


def main() -> None:
    with roost.embedded(INVENTORY) as address:
        said = {}
        try:
            roost.Cluster(address=address)
        except roost.ClusterError as error:
            said["no job"] = error.codes
        with roost.Cluster(num_nodes=4, address=address) as cluster:
            said["types"] = [node.accelerators.type for node in cluster.nodes]
            said["counts"] = [node.accelerators.count for node in cluster.nodes]
            strategy = roost.FlexiblePlacementStrategy([[1], [2], [3], [5, 6]])
            group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="mixed")
            said["seen"] = group.environment(*NAMES).wait(timeout=60)
            bare = Reporter.create_group().launch(
                cluster, placement_strategy=roost.NodePlacementStrategy([3]), name="bare"
            )
            said["bare"] = [
                {name: value or None for name, value in one.items()}
                for one in bare.environment(*NAMES).wait(timeout=60)
            ]
            say(said)


main()
