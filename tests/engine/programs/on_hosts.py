"""A job over several hosts: says where everything is, and meets over the leased port."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray
from crew import Reporter
from saying import say

import roost

JOB = {
    "cluster": {"component_placement": {"actor": "1-2", "env": {"node_group": "node", "placement": "0-2"}}}
}


def with_saved_plan(cluster: roost.Cluster, file: Path) -> dict[str, Any]:
    """Save a plan for this cluster, or launch the one that was saved for another."""
    if not file.exists():
        roost.save_plan(roost.plan(JOB, cluster), file)
        return {"saved for": [node.ip for node in roost.load_plan(file).inventory.nodes]}
    other = roost.plan({"cluster": {"component_placement": {"actor": "0-4"}}}, "1x2,1x3,1x0")
    try:
        cluster.launch(other, {"actor": Reporter})
        said: dict[str, Any] = {}
    except roost.ConfigurationError as error:
        said = {"refused": [finding.what for finding in error.findings]}
    named = ray.util.list_named_actors(all_namespaces=True)
    said["started"] = [one["name"] for one in named if one["name"].startswith("actor:")]
    plan = roost.load_plan(file)
    with cluster.launch(plan, {"actor": Reporter, "env": Reporter}) as run:
        said["digests"] = [plan.digest, run.plan.digest]
        said["actor"] = run["actor"].own_addresses().wait(timeout=60)
        said["env"] = run["env"].own_addresses().wait(timeout=60)
    return said


def main(nodes: str, timeout: str, plan: str) -> None:
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
            port = int(said["seen"][0]["MASTER_PORT"])
            said["held where"] = group.can_take_port(port).wait(timeout=60)
        said["plan"] = with_saved_plan(cluster, Path(plan))
        say(said)


main(*sys.argv[1:])
