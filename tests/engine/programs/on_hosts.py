"""Runs on the head of the test hosts: what the cluster and its workers are told, and whether it is true."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import ray
from saying import say

import roost


class Member(roost.Worker):
    def told(self) -> dict[str, Any]:
        names = (
            "RANK",
            "NODE_RANK",
            "CLUSTER_NODE_RANK",
            "MASTER_ADDR",
            "MASTER_PORT",
            "CUDA_VISIBLE_DEVICES",
        )
        return {**{name: os.environ[name] for name in names}, "ip": ray.util.get_node_ip_address()}

    def listen(self) -> int:
        """Rank 0 serves on the leased port, as a rendezvous would."""
        self.server = socket.socket()
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.server.bind(("", int(os.environ["MASTER_PORT"])))
        self.server.listen()
        return int(self.server.getsockname()[1])

    def connect(self) -> str:
        with socket.create_connection(
            (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 20
        ) as line:
            return str(line.getpeername()[0])


def main() -> None:
    cluster = roost.Cluster(num_nodes=int(sys.argv[1]), timeout=float(sys.argv[2]))
    say({"nodes": [node.ip for node in cluster.nodes], "master": cluster.master_addr})
    group = Member.create_group().launch(cluster, roost.PackedPlacementStrategy(2, 5), name="member")
    say(group.told().wait(timeout=60))
    group.execute_on(0).listen().wait(timeout=60)
    say(group.execute_on(1, 2, 3).connect().wait(timeout=60))
    names = ("NodeManager", "WorkerManager", "CollectiveManager")
    managers = [ray.get_actor(name, namespace=f"roost.{cluster.job}") for name in names]
    address = [manager.__ray_call__.remote(lambda _: ray.util.get_node_ip_address()) for manager in managers]
    say(ray.get(address, timeout=60))
    cluster.shutdown()


if __name__ == "__main__":
    main()
