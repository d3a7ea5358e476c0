"""Starts a Ray of its own and says where each rank of a group is, by what the worker itself finds."""

from __future__ import annotations

import os
import sys

import ray
from saying import say

import roost


class Finder(roost.Worker):
    def found(self) -> tuple[str, str, str]:
        """The real node, the node it was told, and its devices."""
        node = ray.get_runtime_context().get_node_id()
        return node, os.environ["CLUSTER_NODE_RANK"], os.environ["CUDA_VISIBLE_DEVICES"]


def main(shape: str) -> None:
    with roost.embedded(shape) as address, roost.Cluster(num_nodes=2, address=address, timeout=60) as cluster:
        # The position at which a node was started outlives a restart; its id does not.
        started = {node["NodeID"]: node["Labels"]["roost-index"] for node in ray.nodes()}
        names = {rank: started[cluster.node(rank).node_id] for rank in range(2)}
        pool = cluster.pool(roost.Layout(actor_num_gpus_per_node=18, rollout_num_gpus=0))
        said = {"ids": sorted(started), "pool": [(names[one.node], one.name) for one in pool.positions]}
        pool.release()
        strategy = roost.FlexiblePlacementStrategy([[1], [12]])
        group = Finder.create_group().launch(cluster, placement_strategy=strategy)
        said["seats"] = [
            (started[node], told, devices) for node, told, devices in group.found().wait(timeout=60)
        ]
        say(said)


main(*sys.argv[1:])
