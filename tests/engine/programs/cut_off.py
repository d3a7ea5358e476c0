"""A job with a rank on a host that the test cuts off. Prints the lost ranks, and when the loss was seen."""

from __future__ import annotations

import sys
import time

from frail import Frail
from saying import say

import roost


def main(job: str) -> None:
    with roost.Cluster(num_nodes=2, job=job, timeout=60) as cluster:
        plan = roost.plan({"cluster": {"component_placement": {"frail": "0-3"}}}, cluster)
        policy = {"frail": {"policy": "one_for_one", "ping": "1s"}}
        run = cluster.launch(plan, {"frail": Frail}, supervise=policy)
        say({"pids": run["frail"].pid().wait(timeout=60)})
        deadline = time.monotonic() + 120
        while not any(event.cause == "node lost" for event in run.events) and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = time.time()
        time.sleep(3)  # so that a restart would show
        events = [(event.rank, event.node, event.cause, event.action) for event in run.events if event.cause]
        say({"seen": seen, "events": events})


main(*sys.argv[1:])
