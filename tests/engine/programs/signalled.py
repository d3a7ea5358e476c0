"""A job that a signal ends at any moment, from its first line on. Its own exit code for SIGTERM is 41."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def own_end(number: int, _: FrameType | None) -> None:
    raise SystemExit(41)


signal.signal(signal.SIGTERM, own_end)
print('@"began"', flush=True)

from crew import Reporter  # noqa: E402

import roost  # noqa: E402

with roost.Cluster(num_nodes=1, job=sys.argv[1], timeout=60) as cluster:
    group = Reporter.create_group().launch(cluster, roost.NodePlacementStrategy([0]), name="one")
    print('@"running"', flush=True)
    group.waits_for("/nowhere").wait()
