"""Opens a job on Ray: finds its nodes, starts an agent on each, and tells the managers."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from roost.engine.cluster_options import ClusterOptions
from roost.engine.connection.discovery import LiveNode, choose, examine, nodes_to_ask, wait_for_nodes
from roost.engine.job.agents import start_agents
from roost.engine.job.managers import Manager, NodeManager, WorkerManager, is_running
from roost.engine.job.open_jobs import follow_run
from roost.engine.processes.process_facts import this_process
from roost.errors import ClusterError
from roost.inventory.inventory import Inventory


def chosen_nodes(job: str, address: str, options: ClusterOptions, agents: dict[str, Any]) -> list[LiveNode]:
    """The nodes of a new job. Fills in the agents of these nodes, by node id."""
    if is_running(job):
        raise ClusterError(
            code="RE115",
            what=f"a job {job!r} is already running on this cluster",
            remedy="choose another name: Cluster(..., job=...)",
        )
    deadline = time.monotonic() + options.timeout
    present = wait_for_nodes(options.num_nodes, address, options.timeout)
    nodes = nodes_to_ask(present, options.num_nodes)
    agents.update(start_agents(nodes, job))
    found = examine(nodes, agents, max(1.0, deadline - time.monotonic()))
    live = choose(found, options.num_nodes, len(present))
    for node_id in agents.keys() - {node.node_id for node in live}:
        ray.kill(agents.pop(node_id))
    return live


def tell_managers(
    managers: Mapping[type[Manager], Any],
    job: str,
    address: str,
    live: Sequence[LiveNode],
    inventory: Inventory,
    master: tuple[str, int],
) -> None:
    """Not waited for: the managers answer other processes once they know."""
    me, node_id, token = this_process(), ray.get_runtime_context().get_node_id(), secrets.token_hex(8)
    follow_run(job, token)
    run = {  # tells this run of the job from others of its name, and where its driver is
        "token": token,
        "time": time.time(),
        "address": address,
        "driver": {"pid": me.pid, "started": me.started, "node_id": node_id},
        "host": socket.gethostname(),
    }
    layout = {
        "nodes": inventory.nodes,
        "facts": [node.facts for node in live],
        # With their values: they stay between our processes, and an attached one launches with them too.
        "groups": dict(inventory.groups),
        "master_addr": master[0],
        "master_port": master[1],
        "driver": me,
        "driver_node": node_id,
        "run": run,
    }
    managers[WorkerManager].open_history.remote(job, run)
    managers[NodeManager].set_layout.remote(layout)
