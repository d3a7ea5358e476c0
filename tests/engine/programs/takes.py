"""Attaches to a job, takes one item of a channel, and ends."""

from __future__ import annotations

import json
import sys

import roost

job, channel = sys.argv[1:]
cluster = roost.Cluster(job=job)
print("@" + json.dumps(roost.Channel(channel).get(timeout=60)), flush=True)
