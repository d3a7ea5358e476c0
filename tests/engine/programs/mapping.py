"""Starts a Ray of its own and prints the place of each rank of a group, as the worker itself finds it."""

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


def one_job(address: str, number: int) -> dict[str, object]:
    with roost.Cluster(num_nodes=2, address=address, timeout=60, job=f"mapping-{number}") as cluster:
        # The position at which a node was started outlives a restart; its id does not.
        started = {node["NodeID"]: node["Labels"]["roost-index"] for node in ray.nodes()}
        names = {rank: started[cluster.node_infos[rank].node_id] for rank in range(2)}
        pool = cluster.pool(roost.Layout(actor_num_gpus_per_node=18, rollout_num_gpus=0))
        order = [(names[one.node], one.name) for one in pool.positions]
        pool.release()
        group = Finder.create_group().launch(cluster, roost.FlexiblePlacementStrategy([[1], [12]]))
        found = group.found().wait(timeout=60)
        seats = [(started[node], told, devices) for node, told, devices in found]
        return {"ids": sorted(started), "pool": order, "seats": seats}


def main(shape: str, jobs: str) -> None:
    """One Ray, and several jobs on it, one after the other."""
    with roost.embedded(shape) as address:
        say([one_job(address, number) for number in range(int(jobs))])


main(*sys.argv[1:])
