"""Tries to reach a Ray that is not there."""

from __future__ import annotations

import sys

from saying import say

import roost

try:
    roost.Cluster(num_nodes=1, address=sys.argv[1])
except roost.ClusterError as error:
    say({"error": str(error), "codes": error.codes})
