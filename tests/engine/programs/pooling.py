"""Pools on nodes of 12 accelerators: the order, and how it holds when somebody else is there first."""

from __future__ import annotations

from typing import Any

from saying import say

import roost


def places(pool: Any) -> list[tuple[int, str]]:
    return [(one.node, one.name) for one in pool.positions]


def main() -> None:
    layout = roost.Layout(actor_num_gpus_per_node=18, rollout_num_gpus=0)
    with roost.embedded("2x12") as address:
        said: dict[str, Any] = {"alone": []}
        for number in range(2):
            with roost.Cluster(num_nodes=2, address=address, job=f"alone-{number}") as cluster:
                said["alone"].append(places(cluster.pool(layout)))
        with (
            roost.Cluster(num_nodes=2, address=address, job="first") as other,
            roost.Cluster(num_nodes=2, address=address, job="second") as cluster,
        ):
            other.reservation.ensure({0: {0, 1, 2, 3}})
            said["beside another job"] = places(cluster.pool(layout))
        say(said)


main()
