"""A job whose head is stopped while it runs: what it asks ends in time, and so does the program, with the code 42."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from saying import say

from roost.engine.connection import cluster_watch

cluster_watch.HEAD_WITHIN = 3.0  # before other modules read it
cluster_watch.ask_head.__defaults__ = (3.0,)

from frail import Frail  # noqa: E402

import roost  # noqa: E402


def outcome(ask: Callable[[], Any]) -> Any:
    try:
        ask()
    except roost.RoostError as error:
        return error.codes
    return "done"


def main(job: str) -> None:
    cluster = roost.Cluster(num_nodes=1, job=job, timeout=60)
    group = Frail.create_group().launch(cluster, roost.FlexiblePlacementStrategy([[0]]), name="frail")
    (pid,) = group.pid().wait(timeout=60)
    say(pid)
    sys.stdin.readline()
    asked = {"call": outcome(lambda: group.pid().wait(timeout=60))}
    os.kill(pid, signal.SIGKILL)
    say(
        asked
        | {
            "channel": outcome(lambda: roost.Channel("new")),
            "launch": outcome(
                lambda: Frail.create_group().launch(
                    cluster, roost.FlexiblePlacementStrategy([[1]]), name="again"
                )
            ),
            "call on a dead one": outcome(lambda: group.pid().wait(timeout=60)),
            "restart": outcome(lambda: group.restart_ranks(0)),
            "shutdown": outcome(cluster.shutdown),
        }
    )
    sys.exit(42)


main(*sys.argv[1:])
