"""Two workers that speak."""

from __future__ import annotations

import sys
import threading

from crew import Reporter
from saying import say

import roost

with roost.Cluster(num_nodes=3, job=sys.argv[1]) as cluster:
    strategy = roost.NodePlacementStrategy([0, 1])
    group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="speakers")
    group.speaks().wait(timeout=60)
    say("spoken")
    threading.Event().wait(3)  # what they said comes a little later
