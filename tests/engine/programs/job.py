"""A job with workers on two nodes that ends as it is told: normal, exception, exit3, or waits for a signal."""

from __future__ import annotations

import os
import sys
import threading

from crew import Reporter
from saying import say

import roost


def main(how: str, name: str) -> None:
    nodes = int(os.environ.get("NODES", "3"))
    cluster = roost.Cluster(num_nodes=nodes, job=name, timeout=60)
    per_node = cluster.nodes[0].accelerators.count
    ranks = [[0], [per_node]] if per_node and nodes > 1 else [[0]]
    strategy = (
        roost.FlexiblePlacementStrategy(ranks) if per_node else roost.NodePlacementStrategy([0] * len(ranks))
    )
    group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="workers")
    import ray

    say(
        {
            "pids": [*group.pid().wait(timeout=60), os.getpid()],
            "ports": [cluster.master_port, group._members.master_port],
            "address": ray.get_runtime_context().gcs_address,
            "session": ray._private.worker._global_node.get_session_dir_path(),
        }
    )
    if how == "exception":
        raise LookupError("the program's own")
    if how == "exit3":
        sys.exit(3)
    if how == "waits in a call":
        group.waits_for("/nowhere").wait()
    if how == "waits":
        threading.Event().wait()


main(*sys.argv[1:])
