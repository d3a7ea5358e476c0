"""A job of two workers on one node that obey one JSON line `[rank, method, ...]` at a time.

The driver itself handles `restart`: it starts that rank again and prints the pids.
"""

from __future__ import annotations

import json
import sys

from port_clients import Lessee
from saying import say

import roost


def main(job: str) -> None:
    with roost.Cluster(num_nodes=1, job=job, timeout=60) as cluster:
        group = Lessee.create_group().launch(cluster, roost.NodePlacementStrategy([0, 0]), name="lessees")
        say(group.pid().wait(timeout=60))
        for line in sys.stdin:
            rank, method, *args = json.loads(line)
            if method == "restart":
                group.restart_ranks(rank)
                say(group.pid().wait(timeout=60))
                continue
            try:
                (value,) = getattr(group.execute_on(rank), method)(*args).wait(timeout=60)
                say(value.ports if isinstance(value, roost.PortLease) else value)
            except roost.RoostError as error:
                cause = error.__cause__
                say({"codes": cause.codes if isinstance(cause, roost.RoostError) else [], "text": str(cause)})


main(*sys.argv[1:])
