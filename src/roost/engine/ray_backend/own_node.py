"""The node this process runs on, in a job on Ray: its agent leases ports and grants locks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import ray

from roost.engine.job.agent_grants import AgentLocks, lease_from
from roost.engine.job.agents import own_node
from roost.engine.job.managers import NodeManager
from roost.engine.locks.node_devices import NodeDevices
from roost.engine.ports.port_lease import PortLease
from roost.engine.processes.process_facts import Owner, this_process
from roost.engine.workers.worker_context import current_worker, describe_this_process


class OwnRayNode:
    def __init__(self) -> None:
        self._job, self._node_id = own_node()

    def lease_ports(self, count: int, consecutive: bool, timeout: float) -> PortLease:
        owner = Owner(process=this_process(), who=describe_this_process())
        host = ray.util.get_node_ip_address()
        return lease_from(self._job, self._node_id, host, count, consecutive, owner, timeout)

    def locks(self) -> AgentLocks:
        return AgentLocks(self._job, self._node_id, ray.util.get_node_ip_address())

    def devices(self) -> NodeDevices:
        # A worker belongs to one job to its end; a driver may start another job of the same name.
        layout = _kept_layout(self._job) if current_worker() is not None else _asked_layout(self._job)
        rank = next(rank for rank, facts in enumerate(layout["facts"]) if facts.node_id == self._node_id)
        names = layout["facts"][rank].device_names
        return NodeDevices.of(self._job, layout["nodes"][rank], layout["groups"], names)


def _asked_layout(job: str) -> Mapping[str, Any]:
    return NodeManager.get_proxy(job).get_layout()


_kept_layout = cache(_asked_layout)
