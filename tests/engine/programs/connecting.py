"""A program that uses Ray before and after it makes a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import ray
from saying import say

import roost

ADDRESS = os.environ["RAY_ADDRESS"]


def refused(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except roost.ClusterError as error:
        return {"codes": error.codes, "text": str(error)}
    return {}


def main(job: str) -> None:
    seen: dict[str, Any] = {}
    seen["no job"] = refused(lambda: roost.Cluster(job="no-such-job"))
    seen["after refusal"] = ray.is_initialized()

    cluster = roost.Cluster(num_nodes=1, job=job)
    seen["namespace of ours"] = ray.get_runtime_context().namespace
    cluster.shutdown()
    cluster.shutdown()
    seen["ours is shut down"] = ray.is_initialized()

    ray.init(address=ADDRESS, namespace="elsewhere", log_to_driver=False)
    seen["unfitting"] = refused(lambda: roost.Cluster(num_nodes=1, job=job))
    seen["unfitting stays"] = ray.is_initialized()
    ray.shutdown()

    for namespace in ("roost", None):
        ray.init(address=ADDRESS, namespace=namespace, log_to_driver=False)
        with roost.Cluster(num_nodes=1, job=job) as cluster:
            seen[f"fitting {namespace}"] = cluster.num_nodes
            seen[f"attached {namespace}"] = roost.Cluster(job=job).job
        seen[f"fitting {namespace} stays"] = ray.is_initialized()
        seen["other address"] = refused(lambda: roost.Cluster(num_nodes=1, job=job, address="127.0.0.3:6379"))
        seen["same address"] = refused(
            lambda: roost.Cluster(num_nodes=1, job=job, address=ADDRESS).shutdown()
        )
        ray.shutdown()

    first, second = roost.Cluster(num_nodes=1, job=f"{job}-1"), roost.Cluster(num_nodes=1, job=f"{job}-2")
    first.shutdown()
    seen["one of two ended"] = roost.NodeManager.get_proxy(second.job).get_master_port() == second.master_port
    second.shutdown()
    seen["both ended"] = ray.is_initialized()
    say(seen)


main(*sys.argv[1:])
