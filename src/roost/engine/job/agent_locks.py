"""Device locks that the agent of a node grants."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray

from roost.engine.connection.actors import answer
from roost.engine.job.agents import agent_of
from roost.engine.locks.lock_errors import devices_in_words, unwatched
from roost.engine.locks.lock_table import Decision, Device, DeviceHold
from roost.engine.processes.owner import Owner
from roost.engine.processes.process_facts import Process, this_process
from roost.engine.workers.worker_context import describe_this_process
from roost.errors import JobEnded

GRACE = 30.0  # seconds that an agent may be late with its answer


class AgentLocks:
    """The locks of a node. `here` says whether this process runs on it, `driver` whether it is the job's driver."""

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
        if not self._here:  # the job ends with its driver, so the agent need not watch the driver
            me = Process(pid=me.pid, started=me.started, elsewhere="the driver's node")
        owner = Owner(process=me, who=describe_this_process())
        agent = self._agent
        request = agent.acquire.remote(owner, list(devices), timeout, hold_for)
        try:
            return answer(request, f"locking {devices_in_words(devices)} of {self.node}", timeout + GRACE)
        except BaseException:  # the agent may still grant the lock, which no process would release
            agent.withdraw.remote(owner)
            raise

    def release(self, owner: Owner, fence: int) -> None:
        if not ray.is_initialized():
            return
        with suppress(JobEnded):  # the lock ended with the job
            answer(self._agent.release_lock.remote(owner, fence), "releasing a lock", GRACE)

    def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        question = f"asking who holds {devices_in_words([device])}"
        return answer(self._agent.hold_on.remote(device), question, GRACE)
