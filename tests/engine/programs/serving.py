"""A job with an engine that is a command with children, behind a router: sglang-router with the argument `real`.

It prints their processes, and runs until the test ends it.
"""

from __future__ import annotations

import json
import signal
import sys

from engines import COMMAND, LIST_ROUTER, Visitor
from saying import say

import roost


def main() -> None:
    cluster = roost.Cluster(num_nodes=1, job="serving")
    pool = cluster.pool(roost.Layout(actor_num_nodes=0, rollout_num_gpus=1))
    command = roost.CommandLine(COMMAND, env={"ENGINE_FAMILY": "1"}, start_within=60)
    router = True if "real" in sys.argv else roost.CommandLine(LIST_ROUTER)
    rollout = roost.RolloutManager(pool, command, router=router)
    engines = [json.loads(Visitor().get(f"{one.url}/whoami")) for one in rollout.endpoints()]
    say({"engines": engines, "router": rollout.router.workers.pid().wait(60)[0]})
    signal.pause()


main()
