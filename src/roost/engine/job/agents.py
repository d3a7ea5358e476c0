"""Starting the agents of a job, finding them again, and the actors of channels and data buffers that they keep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray

from roost.engine.connection.actors import answer, find_actor, job_namespace, named, on_node
from roost.engine.job.managers import NodeManager, check_connected, current_job, is_running
from roost.engine.job.node_agent import NodeAgent, agent_name
from roost.errors import ChannelError, ClusterError, JobEnded, RoostError

START_WITHIN = 120.0  # seconds
_ended: set[str] = set()  # ids of actors that this process found dead: Ray still finds them by name for long


def start_agents(nodes: Sequence[Mapping[str, Any]], job: str) -> dict[str, Any]:
    """Start an agent on every node, all at once. They end with this driver. Returns actors by node id."""
    return {node["NodeID"]: start_agent(node["NodeID"], job) for node in nodes}


def start_agent(node_id: str, job: str, succeeds: bool = False) -> Any:
    actor = ray.remote(num_cpus=0, max_concurrency=100_000)(NodeAgent)  # waiting requests count too
    options = actor.options(
        scheduling_strategy=on_node(node_id), name=agent_name(node_id), namespace=job_namespace(job)
    )
    return named(partial(options.remote, succeeds))


def agent_of(job: str, node_id: str) -> Any:
    """The job's agent on a node. Raises `JobEnded` when there is none."""
    agent = agent_on(job, node_id)
    if agent is None:
        why = "the job has ended, or the agent was killed"
        raise JobEnded(code="RE106", what=f"job {job!r} has no agent on that node", why=why)
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
    check_connected()
    with suppress(ValueError):
        return find_actor(agent_name(node_id), job)
    return None


def find_kept(actor: str) -> tuple[str, Any]:
    """The job of this process, and its living actor of this name or None."""
    check_connected()
    told = os.environ.get("ROOST_JOB")  # trying this name costs less than asking for the job's name
    if told and (found := _living(actor, told)) is not None:
        return told, found
    job = current_job()
    return job, _living(actor, job)


def _living(actor: str, job: str) -> Any:
    with suppress(ValueError):
        found = find_actor(actor, job)
        return None if found._actor_id.hex() in _ended else found
    return None


def find_or_keep(actor: str, cls: type, on_this_node: bool = False) -> tuple[str, Any]:
    """The job of this process, and its actor of this name, which lives as long as the job. Starts the actor if needed.

    The actor starts on the job's first node; with `on_this_node`, on this node if it is one of the job's.
    """
    job, found = find_kept(actor)
    if found is not None:
        return job, found
    agent = agent_on(job, ray.get_runtime_context().get_node_id()) if on_this_node else None
    kept = (agent or head_agent(job)).keep.remote(actor, job_namespace(job), cls)
    return job, answer(kept, f"starting {actor}", START_WITHIN)


def process_ended(job: str, host: Any, what: str, error: JobEnded, then: str = "") -> RoostError:
    """The error for a process of roost's that died, with what to do then; `error` itself if the job has ended."""
    if not is_running(job):
        return error
    _ended.add(host._actor_id.hex())
    return ChannelError(
        code="RE126",
        what=what,
        why=error.findings[0].why,
        remedy=f"look for what killed it, such as a lack of memory; {then or 'a process that opens it again gets a new one'}",
    )
