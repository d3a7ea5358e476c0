"""Taking turns on a device: a lock has an owner, ends with it, and carries a fencing number."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from roost.engine.here import agent_of, ask, inline_cluster, own_node
from roost.engine.locks.lock_errors import devices_in_words, not_had, outdated, unwatched
from roost.engine.locks.lock_table import Decision, Device, Granted, Holding
from roost.engine.locks.node_devices import NodeDevices, check_devices
from roost.engine.processes.owner import Owner, Process, in_words, this_process
from roost.engine.workers import worker
from roost.errors import ClusterError, ConfigurationError, Finding, shown

GRACE = 30.0  # seconds that an agent may be late with its answer


class Locks(Protocol):
    """The locks of one node."""

    node: str  # in words

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision: ...

    def release(self, owner: Owner, fence: int) -> None: ...

    def holding(self, device: Device) -> tuple[Holding, float] | None: ...


class DeviceLock:
    """Devices that are this process's turn, until it releases them, ends, or has had them for `hold_for`."""

    def __init__(self, locks: Locks, granted: Granted) -> None:
        self._locks, self._owner = locks, granted.owner
        self.devices, self.fence = granted.devices, granted.fence

    @property
    def held(self) -> bool:
        """Whether it is still the holder, as the node's agent has it."""
        found = self._locks.holding(self.devices[0])
        return found is not None and found[0].fence == self.fence

    def check(self) -> None:
        """Raises when it is no longer the holder."""
        check_on(self._locks, self.devices[0], self.fence)

    def release(self) -> None:
        """Let the next one have them. May be called twice, and after the lock was lost."""
        self._locks.release(self._owner, self.fence)

    def __enter__(self) -> DeviceLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<lock {self.fence} of {devices_in_words(self.devices)} on {self._locks.node}>"


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
    """What a guarded resource calls: raises unless this is the number of the lock held on the device now."""
    check_number(fence)
    check_on(_own_locks(), _devices_here().identify(device), fence)


def lock_on(
    locks: Locks, devices: Sequence[Device], timeout: float = 60.0, hold_for: float | None = None
) -> DeviceLock:
    """`devices` as `NodeDevices` knows them."""
    _check_seconds("timeout", timeout)
    if hold_for is not None:
        _check_seconds("hold_for", hold_for)
    decision = locks.acquire(devices, float(timeout), hold_for)
    if isinstance(decision, Granted):
        return DeviceLock(locks, decision)
    raise not_had(decision, devices, locks.node, timeout)


def check_on(locks: Locks, device: Device, fence: int) -> None:
    found = locks.holding(device)
    if found is not None and found[0].fence == fence:
        return
    raise outdated(device, fence, found, locks.node)


# -- where the locks are -------------------------------------------------------------------------------


class AgentLocks:
    """The locks of a live node, kept by its agent."""

    def __init__(self, job: str, node_id: str, node: str, here: bool = True, driver: bool = False) -> None:
        self.node = node
        self._job, self._node_id, self._here, self._driver = job, node_id, here, driver

    @property
    def _agent(self) -> Any:
        return agent_of(self._job, self._node_id)

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision:
        if not (self._here or self._driver):
            raise unwatched(self.node)
        me = this_process()
        if not self._here:  # the job ends with its driver, so nobody need watch it
            me = Process(pid=me.pid, started=me.started, elsewhere="the driver's node")
        owner = Owner(process=me, who=in_words())
        agent = self._agent
        request = agent.acquire.remote(owner, list(devices), timeout, hold_for)
        try:
            return ask(request, f"locking {devices_in_words(devices)} of {self.node}", timeout + GRACE)
        except BaseException:  # it may still be granted, and nobody would know of it
            agent.withdraw.remote(owner)
            raise

    def release(self, owner: Owner, fence: int) -> None:
        import ray

        if not ray.is_initialized():
            return
        try:
            ask(self._agent.release_lock.remote(owner, fence), "releasing a lock", GRACE)
        except ClusterError as error:
            if "RE106" not in error.codes:  # the job has ended, and its locks with it
                raise

    def holding(self, device: Device) -> tuple[Holding, float] | None:
        return ask(
            self._agent.holding.remote(device), f"asking who holds {devices_in_words([device])}", GRACE
        )


def _own_locks() -> Locks:
    inline = inline_cluster()
    if inline is not None:
        return inline.locks_on(int(os.environ.get("CLUSTER_NODE_RANK", 0)))
    import ray

    job, node_id = own_node()
    return AgentLocks(job, node_id, ray.util.get_node_ip_address())


def _devices_here() -> NodeDevices:
    """What there is on the node this process runs on."""
    inline = inline_cluster()
    if inline is not None:
        return inline.devices_on(int(os.environ.get("CLUSTER_NODE_RANK", 0)))
    job, node_id = own_node()
    layout = _layout(job)
    rank = next(rank for rank, facts in enumerate(layout["facts"]) if facts.node_id == node_id)
    return NodeDevices.of(job, layout["nodes"][rank], layout["groups"], layout["facts"][rank].device_names)


def _own_devices() -> list[Device]:
    """What the placement of this worker says. Other hardware than accelerators is numbered in its group."""
    context = worker._starting
    if context is None or not context.placement.hardware:
        raise ConfigurationError(
            Finding(
                code="RC104",
                what="there are no devices to lock",
                why="this process is not a worker with devices of its own",
                remedy="name them: device_lock(devices=[0]), or cluster.device_lock(node_rank, [0])",
            )
        )
    placement, inline = context.placement, inline_cluster()
    groups = _layout(context.job)["groups"] if inline is None else inline.inventory.groups
    group = groups.get(placement.node_group_label)
    if group is not None and group.hardware_type:
        return [f"{placement.node_group_label}:{number}" for number in placement.hardware]
    return list(placement.hardware)


def _layout(job: str) -> Mapping[str, Any]:
    # A worker's job is one and the same to its end; a driver may start another job of that name.
    return _kept_layout(job) if worker._starting is not None else _asked_layout(job)


def _asked_layout(job: str) -> Mapping[str, Any]:
    from roost.engine.job.managers import NodeManager

    layout: Mapping[str, Any] = NodeManager.get_proxy(job).get_layout()
    return layout


_kept_layout = cache(_asked_layout)


def check_number(fence: Any) -> None:
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise ConfigurationError(
            Finding(
                code="RC104",
                what=f"a fencing number is a whole number, not {shown(fence)}",
                remedy="pass the `fence` of a lock",
            )
        )


def _check_seconds(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ConfigurationError(
            Finding(code="RC104", what=f"{name} is a number of seconds, not {shown(value)}")
        )
