"""A job of two workers that print lines. It ends on command: Ray shows the lines a little later."""

from __future__ import annotations

import sys

from crew import Reporter
from saying import say

import roost

with roost.Cluster(num_nodes=1, job=sys.argv[1]) as cluster:
    strategy = roost.NodePlacementStrategy([0, 0])
    group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="speakers")
    group.speaks().wait(timeout=60)
    say("spoken")
    sys.stdin.readline()
