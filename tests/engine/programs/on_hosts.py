"""A job over several hosts: says where everything is, and meets over the leased port."""

from __future__ import annotations

import sys

from crew import Reporter
from saying import say

import roost


def main(nodes: str, timeout: str) -> None:
    try:
        cluster = roost.Cluster(num_nodes=int(nodes), job=f"hosts-{nodes}", timeout=float(timeout))
    except roost.ClusterError as error:
        say({"error": str(error), "codes": error.codes})
        return
    with cluster:
        names = ("MASTER_ADDR", "MASTER_PORT", "CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES")
        said = {
            "nodes": [node.ip for node in cluster.nodes],
            "accelerators": [node.accelerators.count for node in cluster.nodes],
            "master": [cluster.master_addr, cluster.master_port],
        }
        # Rank 0 is not on the master node: the group meets at its own first host.
        strategy = roost.FlexiblePlacementStrategy([[2], [3], [4]])
        with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="meeting") as group:
            said["seen"] = group.environment(*names).wait(timeout=60)
            said["own addresses"] = group.own_addresses().wait(timeout=60)
            leader = group.execute_on(0).accepts_one()
            said["met"] = [group.execute_on(2).meets().wait(timeout=60), leader.wait(timeout=60)]
            said["held where"] = group.can_take_port(group._members.master_port).wait(timeout=60)
        say(said)


main(*sys.argv[1:])
