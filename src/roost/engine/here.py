"""The node this process runs on: leasing its ports and locking its devices, on Ray and inline."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from roost.engine.inline_backend.backend import InlineBackend, current_inline
from roost.engine.locks.device_lock import DeviceLock, Locks, check_number, check_on, lock_on
from roost.engine.locks.lock_table import Device
from roost.engine.locks.node_devices import NodeDevices, check_devices
from roost.engine.ports.port_lease import PortLease
from roost.engine.processes.owner import Owner
from roost.engine.processes.process_facts import this_process
from roost.engine.workers.worker_context import current_worker, describe_this_process
from roost.errors import ConfigurationError, Finding

# Imports inside functions keep Ray out of inline programs.


def lease_ports(count: int = 1, *, consecutive: bool = False, timeout: float = 30.0) -> PortLease:
    """Ports of the node this process runs on, until they are released or this process ends."""
    inline = inline_here()
    if inline is not None:
        return inline.lease_ports(_inline_node(), count, consecutive, timeout)
    import ray

    from roost.engine.job.agent_leases import lease_from
    from roost.engine.job.agents import own_node

    job, node_id = own_node()
    owner = Owner(process=this_process(), who=describe_this_process())
    return lease_from(job, node_id, ray.util.get_node_ip_address(), count, consecutive, owner, timeout)


def device_lock(
    timeout: float = 60.0, hold_for: float | None = None, devices: Sequence[Device] | None = None
) -> DeviceLock:
    """Lock this worker's own devices, or these of its node; waits for its turn, at most `timeout` seconds.

    After `hold_for` seconds the lock may be given to the next one who asks.
    """
    if devices is None:
        return lock_on(_own_locks(), _own_devices(), timeout, hold_for)
    check_devices(devices)
    return lock_on(_own_locks(), _devices_here().identify_all(devices), timeout, hold_for)


def check_fence(device: Device, fence: int) -> None:
    """For guarded resources: raises unless this is the number of the lock held on the device now."""
    check_number(fence)
    check_on(_own_locks(), _devices_here().identify(device), fence)


def inline_here() -> InlineBackend | None:
    """The inline job this code runs in, if any. Ray is not loaded to find out."""
    inline, ray = current_inline(), sys.modules.get("ray")
    connected = ray is not None and ray.is_initialized()
    if inline is None or (connected and os.environ.get("ROOST_JOB") != inline.job):
        return None
    return inline


def _inline_node() -> int:
    return int(os.environ.get("CLUSTER_NODE_RANK", 0))


def _own_locks() -> Locks:
    inline = inline_here()
    if inline is not None:
        return inline.locks_on(_inline_node())
    import ray

    from roost.engine.job.agent_locks import AgentLocks
    from roost.engine.job.agents import own_node

    job, node_id = own_node()
    return AgentLocks(job, node_id, ray.util.get_node_ip_address())


def _devices_here() -> NodeDevices:
    """The devices of the node this process runs on."""
    inline = inline_here()
    if inline is not None:
        node = inline.inventory.nodes[_inline_node()]
        return NodeDevices.of(inline.job, node, inline.inventory.groups)
    from roost.engine.job.agents import own_node

    job, node_id = own_node()
    layout = _layout(job)
    rank = next(rank for rank, facts in enumerate(layout["facts"]) if facts.node_id == node_id)
    return NodeDevices.of(job, layout["nodes"][rank], layout["groups"], layout["facts"][rank].device_names)


def _own_devices() -> list[Device]:
    """The devices of this worker's placement. Hardware other than accelerators is numbered in its group."""
    context = current_worker()
    if context is None or not context.placement.hardware:
        raise ConfigurationError(
            Finding(
                code="RC104",
                what="there are no devices to lock",
                why="this process is not a worker with devices of its own",
                remedy="name them: device_lock(devices=[0]), or cluster.device_lock(node_rank, [0])",
            )
        )
    placement = context.placement
    if placement.holds_accelerators:
        return list(placement.hardware)
    return [f"{placement.node_group_label}:{number}" for number in placement.hardware]


def _layout(job: str) -> Mapping[str, Any]:
    # A worker belongs to one job to its end; a driver may start another job of the same name.
    return _kept_layout(job) if current_worker() is not None else _asked_layout(job)


def _asked_layout(job: str) -> Mapping[str, Any]:
    from roost.engine.job.managers import NodeManager

    layout: Mapping[str, Any] = NodeManager.get_proxy(job).get_layout()
    return layout


_kept_layout = cache(_asked_layout)
