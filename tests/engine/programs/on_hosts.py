"""A job over several hosts of 8 accelerators: says where everything is, and what its engines are told.

Three hosts have the order that roost gives them; the plan that is saved there is launched on two that declare theirs.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from crew import Reporter
from engines import COMMAND, Telling, Visitor
from pool_program import InfoActor, sort_key
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from saying import say

import roost
from roost import Layout

JOB = {"cluster": {"component_placement": {"actor": "7-8", "env": {"node_group": "node", "placement": "1"}}}}
NAMES = ("MASTER_ADDR", "MASTER_PORT", "CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES")


def too_many(nodes: int) -> list[Any]:
    """How a job is refused that wants one node more than there are."""
    try:
        roost.Cluster(num_nodes=nodes + 1, job="too-many", timeout=1)
    except roost.ClusterError as error:
        return [error.codes, str(error)]
    return []


def meet(cluster: roost.Cluster) -> dict[str, Any]:
    """Rank 0 is not on the master node: the group meets at its own first host."""
    strategy = roost.FlexiblePlacementStrategy([[9], [16]])
    with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="meeting") as group:
        said: dict[str, Any] = {
            "seen": group.environment(*NAMES).wait(timeout=60),
            "own addresses": group.own_addresses().wait(timeout=60),
        }
        leader = group.execute_on(0).accepts_one()
        said["met"] = [group.execute_on(1).meets().wait(timeout=60), leader.wait(timeout=60)]
        port = int(said["seen"][0]["MASTER_PORT"])
        said["held where"] = group.can_take_port(port).wait(timeout=60)
    return said


def pools(cluster: roost.Cluster) -> dict[str, Any]:
    """The order of a pool over all accelerators, and what cannot be a pool."""
    said: dict[str, Any] = {}
    with cluster.pool(Layout(actor_num_gpus_per_node=24, rollout_num_gpus=0)) as pool:
        said["order"] = [(one.node, one.name) for one in pool.positions]
    try:
        cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=12, rollout_num_gpus_per_engine=12))
    except roost.RoostError as error:
        said["twelve"] = str(error)
    return said


def with_probes_of_its_own(cluster: roost.Cluster) -> dict[str, Any]:
    """What an actor in each bundle finds, in roost's order, and the order by a program's own key."""
    layout = Layout(actor_num_gpus_per_node=4, rollout_num_gpus=0, accelerators="7-9,16")
    pgs = roost.create_placement_groups(layout, cluster)
    pg, bundles, devices = pgs["actor"]
    actors = [
        InfoActor.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(pg, placement_group_bundle_index=index)
        ).remote()
        for index in range(len(bundles))
    ]
    found = ray.get([actor.get_ip_and_gpu_id.remote() for actor in actors], timeout=120)
    for actor in actors:
        ray.kill(actor)
    in_order = sorted([(index, *one) for index, one in enumerate(found)], key=sort_key)
    said = {
        "bundles": bundles,
        "devices": devices,
        "found": [found[index] for index in bundles],
        "sorted": [index for index, _, _ in in_order],
    }
    pgs.release()
    deadline = time.monotonic() + 60
    while ray.available_resources().get("GPU", 0) < 24 and time.monotonic() < deadline:
        time.sleep(0.05)
    return said


def engines(cluster: roost.Cluster, layout: Layout) -> list[dict[str, Any]]:
    """What each process was told; each can only listen on an address of its own host."""
    with cluster.pool(layout) as pool, roost.RolloutManager(pool, Telling, timeout=90) as rollout:
        workers = rollout.groups["rollout"].workers
        assert workers is not None
        listening = workers.can_listen().wait(60)
        told = [asdict(context) for context in workers.told().wait(60)]
        return [{**one, "listened": ports} for one, ports in zip(told, listening, strict=True)]


def served(cluster: roost.Cluster) -> dict[str, Any]:
    """A command that serves on the second host, asked from this one."""
    layout = Layout(actor_num_gpus_per_node=8, rollout_num_gpus=8, rollout_num_gpus_per_engine=8)
    command = roost.CommandLine(COMMAND, start_within=60)
    with cluster.pool(layout) as pool, roost.RolloutManager(pool, command) as rollout:
        (endpoint,) = rollout.endpoints()
        return {"endpoint": asdict(endpoint), "answer": json.loads(Visitor().get(f"{endpoint.url}/whoami"))}


def save_plan(cluster: roost.Cluster, file: Path) -> list[str | None]:
    """Save a plan for the first two nodes of this cluster."""
    nodes = cluster.inventory.nodes[:2]
    roost.save_plan(roost.plan(JOB, roost.Inventory(nodes=nodes)), file)
    return [node.ip for node in roost.load_plan(file).inventory.nodes]


def launch_plan(cluster: roost.Cluster, file: Path) -> dict[str, Any]:
    """Launch the plan that was saved for another cluster, after one of another shape."""
    other = roost.plan({"cluster": {"component_placement": {"actor": "0-8"}}}, "1x9,1x0")
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
        said["seen"] = run["actor"].environment(*NAMES).wait(timeout=60)
        said["actor"] = run["actor"].own_addresses().wait(timeout=60)
        said["env"] = run["env"].own_addresses().wait(timeout=60)
    return said


def main(nodes: int, plan: Path) -> None:
    missing = too_many(nodes)
    with roost.Cluster(num_nodes=nodes, job=f"hosts-{nodes}", timeout=60) as cluster:
        said = {
            "missing": missing,
            "nodes": [node.ip for node in cluster.nodes],
            "accelerators": [node.accelerators.count for node in cluster.nodes],
            "master": [cluster.master_addr, cluster.master_port],
        }
        if plan.exists():
            said |= launch_plan(cluster, plan)
        else:
            split = Layout(actor_num_gpus_per_node=4, rollout_num_gpus=12, rollout_num_gpus_per_engine=4)
            wide = Layout(actor_num_nodes=0, rollout_num_gpus=16, rollout_num_gpus_per_engine=16)
            said |= {
                "saved for": save_plan(cluster, plan),
                **pools(cluster),
                "probes": with_probes_of_its_own(cluster),
                "split": engines(cluster, split),
                "wide": engines(cluster, wide),
                **served(cluster),
                **meet(cluster),  # at last, since a job keeps the accelerators of a group
            }
        say(said)


main(int(sys.argv[1]), Path(sys.argv[2]))
