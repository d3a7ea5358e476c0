"""Port leases and device locks that the agent of a node grants."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray

from roost.engine.connection.actors import answer
from roost.engine.job.agents import agent_of
from roost.engine.locks.device_lock import devices_in_words, unwatched
from roost.engine.locks.lock_table import Decision, Device, DeviceHold
from roost.engine.ports.port_lease import PortLease
from roost.engine.processes.process_facts import Owner, Process, this_process
from roost.engine.workers.result import seconds
from roost.engine.workers.worker_context import describe_this_process
from roost.errors import JobEnded, NoAnswer

GRACE = 30.0  # seconds that an agent may be late with its answer


class AgentLocks:
    """The locks of a node. `here`: this process runs on the node. `driver`: this process is the job's driver."""

    def __init__(self, job: str, node_id: str, node: str, here: bool = True, driver: bool = False) -> None:
        self.node = node
        self._job, self._node_id, self._here, self._driver = job, node_id, here, driver

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision:
        if not (self._here or self._driver):
            raise unwatched(self.node)
        me = this_process()
        if not self._here:  # the job ends with its driver, so the agent need not watch the driver
            me = Process(pid=me.pid, started=me.started, elsewhere="the driver's node")
        owner = Owner(process=me, who=describe_this_process())
        agent = agent_of(self._job, self._node_id)
        request = agent.acquire.remote(owner, list(devices), timeout, hold_for)
        try:
            return answer(request, f"locking {devices_in_words(devices)} of {self.node}", timeout + GRACE)
        except BaseException:  # the agent may still grant the lock, which no process would release
            agent.withdraw.remote(owner)
            raise

    def release(self, owner: Owner, fence: int) -> None:
        _give_back(self._job, self._node_id, "releasing a lock", "release_lock", owner, fence)

    def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        question = f"asking who holds {devices_in_words([device])}"
        return answer(agent_of(self._job, self._node_id).hold_on.remote(device), question, GRACE)


def lease_from(
    job: str, node_id: str, host: str, count: int, consecutive: bool, owner: Owner, timeout: float
) -> PortLease:
    limit = seconds(timeout)
    request = agent_of(job, node_id).lease_ports.remote(count, consecutive, owner)
    try:
        ports = answer(request, f"leasing ports on {host}", GRACE if limit is None else limit)
    except NoAnswer:  # the agent may still grant the lease, which no process would use
        agent_of(job, node_id).withdraw_lease.remote(owner)
        raise
    return PortLease(
        host=host,
        ports=ports,
        _give_back=partial(_give_back, job, node_id, "releasing ports", "release_lease", owner),
    )


def _give_back(job: str, node_id: str, what: str, method: str, *args: Any) -> None:
    if not ray.is_initialized():
        return
    with suppress(JobEnded):  # the lock or lease ended with the job
        answer(getattr(agent_of(job, node_id), method).remote(*args), what, GRACE)
