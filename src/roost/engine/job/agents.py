"""Starting the agents of a job, finding them again, and asking them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from roost.engine.connection.actors import find_actor, named, on_node
from roost.engine.job.managers import NodeManager, check_connected, current_job
from roost.engine.job.node_agent import NodeAgent, agent_name
from roost.errors import ClusterError, JobEnded


def start_agents(nodes: Sequence[Mapping[str, Any]], namespace: str) -> dict[str, Any]:
    """Start an agent on every node, all at once. They end with this driver. Returns actors by node id."""
    actor = ray.remote(num_cpus=0, max_concurrency=100_000)(NodeAgent)  # waiting requests count too
    return {
        node["NodeID"]: named(
            actor.options(
                scheduling_strategy=on_node(node["NodeID"]),
                name=agent_name(node["NodeID"]),
                namespace=namespace,
            ).remote
        )
        for node in nodes
    }


def agent_of(job: str, node_id: str) -> Any:
    """The job's agent on a node. Raises `JobEnded` when there is none."""
    agent = agent_on(job, node_id)
    if agent is None:
        raise JobEnded(code="RE106", what=f"job {job!r} has no agent on that node", why="the job has ended")
    return agent


def head_agent(job: str) -> Any:
    """The agent of the job's first node."""
    return agent_of(job, NodeManager.get_proxy(job).get_nodes()[0].node_id)


def own_node() -> tuple[str, str]:
    """This process's job, and the id of its node. Raises if that is no node of the job."""
    check_connected()
    node_id = ray.get_runtime_context().get_node_id()
    told = os.environ.get("ROOST_JOB")
    if told and agent_on(told, node_id) is not None:
        return told, node_id
    job = current_job()
    if agent_on(job, node_id) is not None:
        return job, node_id
    theirs = ", ".join(node.ip for node in NodeManager.get_proxy(job).get_nodes()[:8])
    raise ClusterError(
        code="RE114",
        what=f"this process runs on {ray.util.get_node_ip_address()}, which is not a node of job {job!r}",
        why=f"ports are held and devices are locked on the job's own nodes: {theirs}",
        remedy="ask for it in a worker, or for a node by its rank: cluster.lease_ports(node_rank)",
    )


def agent_on(job: str, node_id: str) -> Any | None:
    """The job's agent on a node; None if the job has none there."""
    try:
        return find_actor(agent_name(node_id), job)
    except ValueError:
        return None
