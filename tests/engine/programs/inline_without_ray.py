"""A whole program on a machine without Ray."""

from __future__ import annotations

import sys


def main() -> None:
    sys.modules["ray"] = None  # type: ignore[assignment]  # importing it fails from here on
    from crew import Reporter
    from saying import say

    import roost

    with roost.Cluster(num_nodes=1) as cluster:
        strategy = roost.PackedPlacementStrategy(0, 3)
        group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name="inline")
        say({"answers": group.echo(roost.scatter("abcd")).wait(), "ray": sys.modules["ray"]})


main()
