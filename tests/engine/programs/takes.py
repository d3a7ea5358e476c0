"""Attaches to a job, takes one item of a channel, and ends: in order, or by an exception."""

from __future__ import annotations

import sys

from saying import say

import roost

job, channel, how = sys.argv[1:]
cluster = roost.Cluster(job=job)
say(roost.Channel(channel).get(timeout=60))
if how == "raises":
    raise LookupError("while it worked on the item")
if how == "raises inside":
    with cluster:
        raise LookupError("while it worked on the item")
