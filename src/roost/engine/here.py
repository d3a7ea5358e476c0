"""The node this process runs on: leasing its ports and locking its devices, on Ray and inline."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roost.engine.inline_backend.inline_backend import InlineBackend, InlineNode, current_inline
from roost.engine.locks.device_lock import DeviceLock, check_number, check_on, lock_on
from roost.engine.locks.lock_table import Device
from roost.engine.locks.node_devices import check_devices
from roost.engine.ports.port_lease import PortLease
from roost.engine.workers.worker_context import current_worker
from roost.errors import ConfigurationError

if TYPE_CHECKING:
    from roost.engine.ray_backend.own_node import OwnRayNode


def lease_ports(count: int = 1, *, consecutive: bool = False, timeout: float = 30.0) -> PortLease:
    """Lease ports of this process's node, until they are released or this process ends."""
    return _own_node().lease_ports(count, consecutive, timeout)


def device_lock(
    timeout: float = 60.0, hold_for: float | None = None, devices: Sequence[Device] | None = None
) -> DeviceLock:
    """Lock this worker's own devices, or the given devices of its node. Waits at most `timeout` seconds.

    After `hold_for` seconds another request may take the devices.
    """
    if devices is None:
        own = _own_devices()
        return lock_on(_own_node().locks(), own, timeout, hold_for)
    check_devices(devices)
    node = _own_node()
    return lock_on(node.locks(), node.devices().identify_all(devices), timeout, hold_for)


def check_fence(device: Device, fence: int) -> None:
    """For guarded resources: raise unless `fence` is the number of the lock now held on the device."""
    check_number(fence)
    node = _own_node()
    check_on(node.locks(), node.devices().identify(device), fence)


def inline_here() -> InlineBackend | None:
    """The inline job this code runs in, if any. Does not import Ray."""
    inline, ray = current_inline(), sys.modules.get("ray")
    connected = ray is not None and ray.is_initialized()
    if inline is None or (connected and os.environ.get("ROOST_JOB") != inline.job):
        return None
    return inline


def _own_node() -> InlineNode | OwnRayNode:
    inline = inline_here()
    if inline is not None:
        return InlineNode(inline, int(os.environ.get("CLUSTER_NODE_RANK", 0)))
    from roost.engine.ray_backend.own_node import OwnRayNode  # inline programs do without Ray

    return OwnRayNode()


def _own_devices() -> list[Device]:
    """The devices of this worker's placement. Hardware other than accelerators is numbered in its group."""
    context = current_worker()
    if context is None or not context.placement.hardware:
        raise ConfigurationError(
            code="RC104",
            what="there are no devices to lock",
            why="this process is not a worker with devices of its own",
            remedy="name them: device_lock(devices=[0]), or cluster.device_lock(node_rank, [0])",
        )
    placement = context.placement
    if placement.holds_accelerators:
        return list(placement.hardware)
    return [f"{placement.node_group_label}:{number}" for number in placement.hardware]
