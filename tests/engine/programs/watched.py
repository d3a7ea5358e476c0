"""A job with calls in flight and a channel, for tests that look at it from outside.

It prints the processes of its workers, and then holds the interpreter: a busy driver.
"""

from __future__ import annotations

import sys

from flow import Source
from saying import say

import roost


def main(job: str, gate: str) -> None:
    cluster = roost.Cluster(num_nodes=2, job=job, timeout=60)
    placement = {"source": "0-2", "engine": "4-5:0", "spare": "6"}
    plan = roost.plan({"cluster": {"num_nodes": 2, "component_placement": placement}}, cluster)
    with cluster.launch(plan, {"source": Source, "engine": Source}, skip=["spare"]) as run:
        roost.Channel("samples", capacity=5).put_many([1, 2, 3])
        pids = run["source"].pid().wait(timeout=60) + run["engine"].pid().wait(timeout=60)
        blocked = run["source"].execute_on(0).blocks(gate)
        say({"pids": pids, "plan": plan.digest})
        while True:  # busy for good
            sum(range(1_000_000))
    del blocked


main(*sys.argv[1:])
