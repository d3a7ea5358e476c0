"""Attaches to a job, takes one item of a channel, and ends."""

from __future__ import annotations

import sys

from saying import say

import roost

job, channel = sys.argv[1:]
cluster = roost.Cluster(job=job)
say(roost.Channel(channel).get(timeout=60))
