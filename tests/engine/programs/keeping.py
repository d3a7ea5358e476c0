"""A job with canaries in its environment and its config that tells everything it can see of itself.

No canary is ever passed on or printed: workers are asked for them backwards.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import ray
from ray.util.placement_group import placement_group_table
from saying import say

import roost


class Keeper(roost.Worker):
    def holding(self, backwards: str) -> list[str]:
        return sorted(name for name, value in os.environ.items() if backwards[::-1] in value)

    def runtime_env(self) -> str:
        return ray.get_runtime_context().get_runtime_env_string()

    def speaks(self, text: str) -> None:
        print(text, flush=True)
        self.log_info(text)

    def fails(self) -> None:
        token = os.environ["SERVICE_TOKEN"]
        raise LookupError(f"a token of {len(token)} letters is refused")

    def dies(self) -> None:
        os._exit(7)


class NeverKeeper(roost.Worker):
    def __init__(self) -> None:
        super().__init__()
        token = os.environ["SERVICE_TOKEN"]
        raise LookupError(f"a token of {len(token)} letters is refused")


class Plain:
    def holding(self, backwards: str) -> list[str]:
        return sorted(name for name, value in os.environ.items() if backwards[::-1] in value)


def failure(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except roost.RoostError as error:
        return [type(error).__name__, str(error), repr(error), "".join(traceback.format_exception(error))]
    return []


def main(config: str, job: str, ours: str, theirs: str) -> None:
    cluster = roost.Cluster(cluster_cfg=config, job=job, timeout=60)
    placement = roost.ComponentPlacement(config, cluster).get_strategy("keeper")
    plan = roost.plan(config, cluster.inventory)
    group = Keeper.create_group().launch(cluster, placement_strategy=placement, name="keeper")
    plain = cluster.allocate(Plain, "plain", 0, None, {"DATABASE_PASSWORD": theirs[::-1]})
    group.speaks("a line of the worker").wait(timeout=60)
    seen = {
        "holding ours": [*group.holding(ours).wait(timeout=60), ray.get(plain.holding.remote(ours))],
        "holding theirs": [*group.holding(theirs).wait(timeout=60), ray.get(plain.holding.remote(theirs))],
        "runtime_env": group.runtime_env().wait(timeout=60),
        "raised": failure(lambda: group.fails().wait(timeout=60)),
        "not started": failure(lambda: NeverKeeper.create_group().launch(cluster, placement, name="never")),
        "reprs": repr([cluster, cluster.inventory, group, group[:1], group.holding(ours), placement, plan]),
        "tables": repr([ray.nodes(), placement_group_table(), ray.util.list_named_actors(True)]),
        "records": repr([ray._private.state.actors(), ray._private.state.jobs()]),
        "layout": repr(roost.NodeManager.get_proxy(job).get_layout()),
        "groups": repr(roost.WorkerManager.get_proxy(job).list_groups()),
        "attached": repr([roost.Cluster(job=job), roost.Cluster(job=job).inventory]),
        "plan": json.dumps(plan.to_dict()),
        "died": failure(lambda: group.dies().wait(timeout=60)),
    }
    say(seen)
    sys.stdin.readline()
    cluster.shutdown()
    say("ended")


main(*sys.argv[1:])
