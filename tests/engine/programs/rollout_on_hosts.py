"""Rollout over several hosts of 8: where engines are, what they are told, and what cannot be."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engines import COMMAND, Telling, Visitor
from saying import say

import roost
from roost import Layout


def engines(cluster: roost.Cluster, layout: Layout) -> list[dict[str, Any]]:
    """What each process was told; each can only listen on an address of its own host."""
    with cluster.pool(layout) as pool, roost.RolloutManager(pool, Telling, timeout=90) as rollout:
        workers = rollout.groups["rollout"].workers
        assert workers is not None
        listening = workers.can_listen().wait(60)
        told = [asdict(context) for context in workers.told().wait(60)]
        return [{**one, "listened": ports} for one, ports in zip(told, listening, strict=True)]


def main() -> None:
    cluster = roost.Cluster(num_nodes=3, job="rollout-on-hosts", timeout=60)
    with cluster:
        said: dict[str, Any] = {"nodes": [node.ip for node in cluster.nodes]}
        with cluster.pool(Layout(actor_num_gpus_per_node=24, rollout_num_gpus=0)) as pool:
            said["order"] = [(one.node, one.name) for one in pool.positions]
        with roost.Cluster(num_nodes=3, job="other-on-hosts", timeout=60) as other:
            other._backend.reservation.ensure({1: {0, 1, 2, 3}})
            with cluster.pool(Layout(actor_num_gpus_per_node=16, rollout_num_gpus=0)) as pool:
                said["beside another job"] = [(one.node, one.name) for one in pool.positions]
        said["split"] = engines(
            cluster, Layout(actor_num_gpus_per_node=4, rollout_num_gpus=12, rollout_num_gpus_per_engine=4)
        )
        said["wide"] = engines(
            cluster, Layout(actor_num_nodes=0, rollout_num_gpus=16, rollout_num_gpus_per_engine=16)
        )
        try:
            cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=12, rollout_num_gpus_per_engine=12))
        except roost.RoostError as error:
            said["twelve"] = str(error)
        layout = Layout(actor_num_gpus_per_node=8, rollout_num_gpus=8, rollout_num_gpus_per_engine=8)
        command = roost.CommandLine(COMMAND, start_within=60)
        with cluster.pool(layout) as pool, roost.RolloutManager(pool, command) as rollout:
            (endpoint,) = rollout.endpoints()
            with Visitor.create_group().launch(cluster, roost.NodePlacementStrategy([0, 2])) as visitors:
                said["served"] = visitors.get(f"{endpoint.url}/whoami").wait(60)
            said["endpoint"] = asdict(endpoint)
        say(said)


main()
