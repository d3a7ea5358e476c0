"""A job that obeys the commands of `contending`, one line at a time."""

from __future__ import annotations

import sys

from contending import told
from saying import say

import roost

with roost.Cluster(num_nodes=2, job=sys.argv[1], timeout=60) as cluster:
    say("ready")
    for line in sys.stdin:
        say(told(cluster._backend.reservation, line))
