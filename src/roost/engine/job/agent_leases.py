"""Port leases that the agent of a node grants."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import ray

from roost.engine.connection.actors import answer
from roost.engine.job.agents import agent_of
from roost.engine.ports.port_lease import PortLease
from roost.engine.processes.owner import Owner
from roost.engine.workers.result import seconds
from roost.errors import JobEnded, NoAnswer

ANSWER_WITHIN = 30.0  # seconds


def lease_from(
    job: str, node_id: str, host: str, count: int, consecutive: bool, owner: Owner, timeout: float
) -> PortLease:
    """Lease ports of that node for the owner."""
    limit = seconds(timeout)
    request = agent_of(job, node_id).lease_ports.remote(count, consecutive, owner)
    try:
        ports = answer(request, f"leasing ports on {host}", ANSWER_WITHIN if limit is None else limit)
    except NoAnswer:  # the agent may still grant the lease, which no process would use
        agent_of(job, node_id).release_lease.remote(owner)
        raise
    return PortLease(host=host, ports=ports, _give_back=partial(_release, job, node_id, owner))


def _release(job: str, node_id: str, owner: Owner) -> None:
    if not ray.is_initialized():
        return
    with suppress(JobEnded):  # the lease ended with the job
        answer(agent_of(job, node_id).release_lease.remote(owner), "releasing ports", ANSWER_WITHIN)
