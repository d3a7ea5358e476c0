"""Leasing ports: a lease is the process's that asked, and ends with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from roost.config.ranks import ranges
from roost.engine.job.node_agent import agent_name
from roost.engine.processes.owner import Owner, in_words, this_process
from roost.engine.workers.result import seconds
from roost.errors import ClusterError, Finding

if TYPE_CHECKING:
    from roost.engine.inline import InlineCluster

ANSWER_WITHIN = 30.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PortLease:
    """Ports of one host that are nobody else's. A server that sets SO_REUSEADDR can listen on them at once."""

    host: str  # the node's address, as Ray knows it
    ports: list[int]
    _give_back: Callable[[], object] = field(compare=False)

    @property
    def port(self) -> int:
        return self.ports[0]

    def release(self) -> None:
        """Give them back. May be called twice, and from a copy in another process of the job."""
        self._give_back()

    def __enter__(self) -> PortLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<lease of port{'s' * (len(self.ports) > 1)} {ranges(self.ports)} on {self.host}>"


def lease_ports(count: int = 1, *, consecutive: bool = False, timeout: float = ANSWER_WITHIN) -> PortLease:
    """Ports of the node this process runs on, until they are released or this process ends."""
    inline = inline_cluster()
    if inline is not None:
        return inline.lease_ports(int(os.environ.get("CLUSTER_NODE_RANK", 0)), count, consecutive, timeout)
    import ray

    job, node_id = own_node()
    owner = Owner(process=this_process(), who=in_words())
    return lease_from(job, node_id, ray.util.get_node_ip_address(), count, consecutive, owner, timeout)


def lease_from(
    job: str, node_id: str, host: str, count: int, consecutive: bool, owner: Owner, timeout: float
) -> PortLease:
    """A lease by the agent of that node."""
    limit = seconds(timeout)
    give_back = partial(_release, job, node_id, owner)
    request = agent_of(job, node_id).lease_ports.remote(count, consecutive, owner)
    try:
        ports = ask(request, f"leasing ports on {host}", ANSWER_WITHIN if limit is None else limit)
    except ClusterError as error:
        if "RE112" in error.codes:  # it may still be granted, and nobody would know of it
            agent_of(job, node_id).release_lease.remote(owner)
        raise
    return PortLease(host=host, ports=ports, _give_back=give_back)


def _release(job: str, node_id: str, owner: Owner) -> None:
    import ray

    if not ray.is_initialized():
        return
    try:
        ask(agent_of(job, node_id).release_lease.remote(owner), "releasing ports", ANSWER_WITHIN)
    except ClusterError as error:
        if "RE106" not in error.codes:  # the job has ended, and its leases with it
            raise


# -- the agents ----------------------------------------------------------------------------------------


def agent_of(job: str, node_id: str) -> Any:
    import ray

    from roost.engine.connection.ray_connection import job_namespace

    try:
        return ray.get_actor(agent_name(node_id), namespace=job_namespace(job))
    except ValueError:
        raise ClusterError(
            Finding(code="RE106", what=f"job {job!r} has no agent on that node", why="the job has ended")
        ) from None


def own_node() -> tuple[str, str]:
    """This process's job, and the id of the node it runs on, which must be one of the job's."""
    import ray

    from roost.engine.connection.ray_connection import job_namespace
    from roost.engine.job.managers import NodeManager, _check_connected, current_job

    _check_connected()
    node_id = ray.get_runtime_context().get_node_id()
    told = os.environ.get("ROOST_JOB")
    if told and _is_there(agent_name(node_id), job_namespace(told)):
        return told, node_id
    job = current_job()
    if _is_there(agent_name(node_id), job_namespace(job)):
        return job, node_id
    theirs = ", ".join(node.ip for node in NodeManager.get_proxy(job).get_nodes()[:8])
    raise ClusterError(
        Finding(
            code="RE114",
            what=f"this process runs on {ray.util.get_node_ip_address()}, which is not a node of job {job!r}",
            why=f"ports are held and devices are locked on the job's own nodes: {theirs}",
            remedy="ask for it in a worker, or for a node by its rank: cluster.lease_ports(node_rank)",
        )
    )


def _is_there(name: str, namespace: str) -> bool:
    import ray

    try:
        ray.get_actor(name, namespace=namespace)
    except ValueError:
        return False
    return True


def ask(ref: Any, what: str, within: float) -> Any:
    """What an agent answers."""
    from roost.engine.connection.ray_connection import (
        answer,  # only here, so that inline programs do without Ray
    )

    return answer(ref, what, within)


def inline_cluster() -> InlineCluster | None:
    """The inline cluster this code runs in, if it does. Neither Ray nor the inline mode is loaded for this."""
    inline, ray = sys.modules.get("roost.engine.inline"), sys.modules.get("ray")
    current: InlineCluster | None = inline._current if inline is not None else None
    connected = ray is not None and ray.is_initialized()
    if current is None or (connected and os.environ.get("ROOST_JOB") != current.job):
        return None
    return current
