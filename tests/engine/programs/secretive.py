"""A job in an embedded Ray whose driver has secrets in its environment."""

from __future__ import annotations

import os
import sys

import ray
from crew import Plain, Reporter
from saying import say

import roost


def main() -> None:
    canary, configured = os.environ["MY_API_KEY"], sys.stdin.readline().strip()
    section = {
        "num_nodes": 1,
        "component_placement": {"actor": {"node_group": "here", "placement": "0-1"}},
        "node_groups": [
            {
                "label": "here",
                "node_ranks": 0,
                "env_configs": [
                    {
                        "node_ranks": 0,
                        "env_vars": [
                            {"WANDB_API_KEY": configured},
                            {"PYTHON_TOKEN": configured},
                            {"PLAIN": "1"},
                        ],
                    }
                ],
            }
        ],
    }
    with roost.Cluster(cluster_cfg=section, job="secretive") as cluster:
        placement = roost.ComponentPlacement({"cluster": section}, cluster)
        group = Reporter.create_group().launch(
            cluster, placement_strategy=placement.get_strategy("actor"), name="actor"
        )
        allocated = cluster.allocate(Plain, "allocated", 0, 1, {"SERVICE_PASSWORD": configured})
        shown = [repr(cluster), repr(cluster.inventory), repr(group), repr(group.echo(1)), str(cluster.nodes)]
        try:
            group.raises(ValueError("an error of the worker"), 1).wait(timeout=60)
        except ValueError as error:
            shown += [str(error), repr(error)]
        attached = roost.Cluster(job="secretive")
        shown += [repr(attached.inventory), repr(roost.WorkerManager.get_proxy("secretive").list_groups())]
        shown += [repr(roost.NodeManager.get_proxy("secretive").get_layout())]
        state = [
            repr(ray.nodes()),
            repr(ray.util.placement_group_table()),
            repr(ray.util.list_named_actors(all_namespaces=True)),
            repr(ray._private.state.actors()),
            repr(ray._private.state.jobs()),
            repr(group.runtime_env().wait(timeout=60)),
        ]
        environments = group.whole_environment().wait(timeout=60)
        reached = [[one.get("WANDB_API_KEY"), one.get("PYTHON_TOKEN")] for one in environments]
        reached.append(list(ray.get(allocated.environment.remote("SERVICE_PASSWORD"), timeout=60).values()))
        say(
            {
                "directory": os.path.dirname(  # noqa: PTH120
                    ray._private.worker._global_node.get_session_dir_path()
                ),
                "shown": sum(canary in text or configured in text for text in shown),
                "state": sum(canary in text or configured in text for text in state),
                "inherited": sum(canary in text for one in environments for text in one.values()),
                "reached": [all(value == configured for value in values) for values in reached],
            }
        )
        sys.stdin.readline()  # the files are searched while the job runs


main()
