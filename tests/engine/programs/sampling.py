"""Takes samples in steps and saves after each; continues where a killed run was. Runs inline."""

from __future__ import annotations

import sys
from pathlib import Path

from saying import say

import roost

source, state = sys.argv[1], Path(sys.argv[2])
with roost.Cluster(num_nodes=1, inline="1x1"):
    buffer = roost.DataBuffer(source, seed=1)
    if state.exists():
        buffer.load(state)
    while True:  # until it is killed
        samples = buffer.get_samples(3)
        buffer.save(state)
        say(samples)
