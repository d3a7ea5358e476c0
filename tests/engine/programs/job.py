"""A job with a worker on each of its nodes, on one accelerator of each.

It ends in the commanded way: normal, exception, exit3, or waits for a signal.
"""

from __future__ import annotations

import os
import sys

from crew import Reporter
from saying import say

import roost


def main(how: str, name: str, nodes: str, accelerator: str) -> None:
    cluster = roost.Cluster(num_nodes=int(nodes), job=name, timeout=60)
    devices = [[4 * node + int(accelerator)] for node in range(cluster.num_nodes)]
    strategy = roost.FlexiblePlacementStrategy(devices)
    group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="workers")
    port = int(group.environment("MASTER_PORT").wait(timeout=60)[0]["MASTER_PORT"])
    say({"pids": [*group.pid().wait(timeout=60), os.getpid()], "ports": [cluster.master_port, port]})
    if how == "exception":
        raise LookupError("the program's own")
    if how == "exit3":
        sys.exit(3)
    if how == "waits in a call":
        group.waits_for("/nowhere").wait()


main(*sys.argv[1:])
