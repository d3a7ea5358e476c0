"""A process of its own that joins a running job: `job` or nothing, then a group's name."""

from __future__ import annotations

import sys

from saying import say

import roost


def main(job: str, group: str) -> None:
    try:
        cluster = roost.Cluster(job=job) if job else roost.Cluster()
        seen = {
            "job": cluster.job,
            "nodes": [str(node) for node in cluster.nodes],
            "groups": sorted(cluster.inventory.groups),
            "master": [cluster.master_addr, cluster.master_port],
            "jobs": roost.running_jobs(),
            "managers": [
                roost.NodeManager.get_proxy(cluster.job).get_master_port(),
                sorted(roost.WorkerManager.get_proxy(cluster.job).list_groups()),
                sorted(roost.CollectiveManager.get_proxy(cluster.job).list()),
            ],
        }
        found = roost.WorkerGroup.attach(group, cluster)
        seen["answers"] = found.echo("from outside").wait(timeout=60)
        seen["one"] = found.execute_on(1).echo("just you").wait(timeout=60)
        # It has joined a job, so that one is meant where none is named.
        own = roost.WorkerGroup.attach(group).echo("by its name alone").wait(timeout=60)
        seen["own job"] = [own[0], roost.NodeManager.get_proxy().get_master_port()]
        found.shutdown()  # only let go of
        cluster.shutdown()
        say(seen)
    except roost.ClusterError as error:
        say({"error": str(error), "codes": error.codes})


main(*sys.argv[1:])
