"""A driver with an open cluster that ends on command, in the commanded way, and never calls shutdown."""

from __future__ import annotations

import os
import sys

from killing import NeverConstructed, Parent
from saying import say

import roost


def main(job: str, how: str, accelerators: str, notes: str = "") -> None:
    cluster = roost.Cluster(num_nodes=int(os.environ.get("NODES", "3")), job=job, timeout=60)
    devices = [int(number) for number in accelerators.split(",") if number]
    strategy = (
        roost.FlexiblePlacementStrategy([[device] for device in devices])
        if devices
        else roost.NodePlacementStrategy([0])
    )
    if how == "while starting":
        say({"pids": [os.getpid()], "ports": [cluster.master_port]})
        NeverConstructed.create_group(notes).launch(cluster, placement_strategy=strategy, name="group")
    group = Parent.create_group().launch(cluster, placement_strategy=strategy, name="group")
    try:
        group.fails().wait(timeout=60)
    except LookupError as error:
        caught = type(error).__name__
    family = group.family().wait(timeout=60)
    say(
        {
            "pids": [os.getpid(), *[pid for pids in family for pid in pids]],
            "workers": [pids[0] for pids in family],
            "ports": [
                cluster.master_port,
                roost.CollectiveManager.get_proxy(job).get("group")["master_port"],
            ],
            "caught": caught,
        }
    )
    if how == "in a call":
        group.never_returns().wait()
    sys.stdin.readline()
    if how == "exception":
        raise LookupError("the program's own")
    if how == "exit":
        sys.exit(3)


main(*sys.argv[1:])
