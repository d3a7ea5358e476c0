"""A job that waits in a call, launches, or runs its own code when its cluster goes away.

It ends with the exit code 42, or as Python ends it if it does not catch the error.
"""

from __future__ import annotations

import sys
import time

from frail import Frail
from saying import say

import roost


def main(job: str, accelerator: str, what: str) -> None:
    cluster = roost.Cluster(num_nodes=1, job=job, timeout=60)
    strategy = roost.FlexiblePlacementStrategy([[int(accelerator)]])
    group = Frail.create_group().launch(cluster, strategy, name="frail")
    say({"pids": group.pid().wait(timeout=60)})
    try:
        while what == "launches":
            Frail.create_group().launch(cluster, strategy, name="again").shutdown()
        if what == "sleeps":
            time.sleep(600)
        group.blocks().wait()
    except roost.ClusterError as error:
        if what == "catches nothing":
            raise
        say({"codes": error.codes, "text": str(error)})
        cluster.shutdown()
        sys.exit(42)


main(*sys.argv[1:])
