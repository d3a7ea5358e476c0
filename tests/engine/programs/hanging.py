"""A job whose only worker never gets past its constructor."""

from __future__ import annotations

import sys
import threading

from saying import say

import roost


class Stuck(roost.Worker):
    def __init__(self) -> None:
        super().__init__()
        print("about to hang", flush=True)
        self.never_ready()

    def never_ready(self) -> None:
        threading.Event().wait()


with roost.Cluster(num_nodes=1, job=sys.argv[1], timeout=60) as cluster:
    say("launching")
    Stuck.create_group().launch(cluster, roost.NodePlacementStrategy([0]), name="stuck")
