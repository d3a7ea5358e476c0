"""A job with canaries in its environment and its config that prints everything it can see of itself.

The job never passes on or prints a canary: it asks workers for them backwards.
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


# It is healthy when it was given the secret, which it is told backwards.
SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.environ.get("SERVER_TOKEN") == sys.argv[2][::-1] else 500)
        self.end_headers()
HTTPServer.allow_reuse_address = True
print("a line of the server", flush=True)
HTTPServer(("", int(sys.argv[1])), Health).serve_forever()
"""
BROKEN = "import os, sys; sys.exit('a token of %d letters is refused' % len(os.environ['SERVER_TOKEN']))"


def serve(cluster: roost.Cluster, theirs: str) -> dict[str, Any]:
    """Servers with a secret of their own: one that serves, one that does not start."""
    layout = roost.Layout(actor_num_nodes=0, rollout_num_gpus=1)
    env = {"SERVER_TOKEN": theirs[::-1]}
    good = roost.CommandLine([sys.executable, "-c", SERVER, "{port}", theirs], env=env, start_within=60)
    broken = roost.CommandLine([sys.executable, "-c", BROKEN], env=env, start_within=60)
    with cluster.pool(layout) as pool:
        refused = failure(lambda: roost.RolloutManager(pool, broken))
        with roost.RolloutManager(pool, good) as rollout:
            endpoints = rollout.endpoints()
            groups = roost.WorkerManager.get_proxy(cluster.job).list_groups()
            records = ray._private.state.actors()
            reprs = repr([good, rollout, rollout.groups, pool, endpoints, groups, records])
    return {"servers": len(endpoints), "server refused": refused, "server reprs": reprs}


def main(config: str, job: str, ours: str, theirs: str) -> None:
    cluster = roost.Cluster(cluster_cfg=config, job=job, timeout=60)
    served = serve(cluster, theirs)
    placement = roost.ComponentPlacement(config, cluster).get_strategy("keeper")
    plan = roost.plan(config, cluster.inventory)
    group = Keeper.create_group().launch(cluster, placement_strategy=placement, name="keeper")
    plain = cluster.allocate(Plain, "plain", 0, None, {"DATABASE_PASSWORD": theirs[::-1]})
    group.speaks("a line of the worker").wait(timeout=60)
    seen = {
        **served,
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
