"""Starts a cluster of two nodes five times, and says each time which rank is where."""

from __future__ import annotations

from crew import Reporter
from saying import say

import roost

NAMES = ("RANK", "CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES")


def main() -> None:
    for _ in range(5):
        with (
            roost.embedded(roost.Inventory.uniform(2, 2, cpus=1)) as address,
            roost.Cluster(num_nodes=2, address=address) as cluster,
        ):
            strategy = roost.FlexiblePlacementStrategy([[0], [1], [3]])
            group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="restarted")
            index = {info.node_id: str(info.label) for info in cluster.node_infos}
            seen = group.environment(*NAMES).wait(timeout=60)
            where = group.node_id().wait(timeout=60)
            # The label says which of the two nodes it really is.
            assert [index[node] for node in where] == [one["CLUSTER_NODE_RANK"] for one in seen]
            say([list(one.values()) for one in seen])


main()
