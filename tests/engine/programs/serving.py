"""A job with two engines that are commands with children; says their processes, and goes on until it is ended."""

from __future__ import annotations

import json
import signal

from engines import COMMAND, Visitor
from saying import say

import roost


def main() -> None:
    cluster = roost.Cluster(num_nodes=3, job="serving")
    pool = cluster.pool(roost.Layout(actor_num_nodes=0, rollout_num_gpus=2))
    command = roost.CommandLine(COMMAND, env={"ENGINE_FAMILY": "1"}, start_within=60)
    rollout = roost.RolloutManager(pool, command)
    say({"engines": [json.loads(Visitor().get(f"{one.url}/whoami")) for one in rollout.endpoints()]})
    signal.pause()


main()
