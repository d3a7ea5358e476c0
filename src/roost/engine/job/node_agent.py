"""The agent of a job on one node: a small actor that reports facts, holds ports and grants locks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from roost.engine.channels.undecided import Undecided, remember
from roost.engine.connection.actors import on_node
from roost.engine.job.node_inspection import NodeInspection, raylet_environment
from roost.engine.job.worker_watch import Loss, WatchedWorker, WorkerWatch, kill, loss_event
from roost.engine.locks.lock_table import Decision, Device, DeviceHold, LockTable
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.machine import Machine, this_machine
from roost.engine.processes.process_facts import Owner, Process
from roost.engine.workers.call_log import Call, CallReader
from roost.engine.workers.call_summary import CallFollower, CallSummary
from roost.errors import ClusterError

LOOK_EVERY = 0.3  # seconds
KILL_AFTER = 1.0  # seconds that a process has to end as Ray asks it to
TAKEN_WITHIN = 3.0  # seconds that the driver has to fetch a loss


def agent_name(node_id: str) -> str:
    """The name of the agent's actor, in the namespace of its job."""
    return f"agent:{node_id[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSight:
    state: str  # "running", "stopped" by a signal, "hung" (no heartbeat), or "dead"
    calls: CallSummary = field(default_factory=CallSummary)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSight:
    """A node as its agent sees it."""

    processes: tuple[ProcessSight, ...]  # in the order in which they were asked for
    machine: Machine
    driver: str = ""  # the state of the job's driver, if it runs on this node


class NodeAgent(NodeInspection):
    """Asynchronous: waiting requests do not block other requests."""

    def __init__(self, succeeds: bool = False) -> None:
        self._succeeds = succeeds  # an agent that died, and with it the knowledge of the locks
        self._shelf = PortShelf()
        self._locks = LockTable()
        self._undecided = Undecided()  # requests for locks and leases, by owner
        self._watcher: asyncio.Task[None] | None = None
        self._logs: dict[Process, CallReader] = {}  # kept for reading the calls of a dead worker
        self._followers: dict[Process, CallFollower] = {}  # of logs that `look` has read before
        self._kept: dict[str, Any] = {}  # actors of channels and data buffers
        self._dismissed: dict[Process, None] = {}  # workers whose group was shut down
        self._workers = WorkerWatch(self._note)
        self._taken = 0  # losses that the driver has fetched
        self._history: Any = None

    async def facts(self, visible_variables: Iterable[str], search_paths: Iterable[str]) -> dict[str, Any]:
        """Facts that only a process on the node can read."""
        environ = raylet_environment()
        return {
            "hostname": socket.gethostname(),
            "declared_rank": os.environ.get("ROOST_NODE_RANK"),
            "accelerator_type": os.environ.get("ROOST_ACCELERATOR_TYPE") or _vendor(),
            "search_paths": {name: os.environ[name] for name in search_paths if name in os.environ},
            "visible": {name: environ[name] for name in visible_variables if name in environ},
        }

    async def never(self) -> None:
        """Wait until the call is cancelled. Ray starts no actor whose arguments depend on it."""
        await asyncio.Event().wait()

    # -- workers ---------------------------------------------------------------------------------------

    async def follow(self, workers: Iterable[tuple[WatchedWorker, int]], history: Any = None) -> None:
        """Open the call logs of these workers, and watch the workers. `history` is the manager that records events."""
        self._history = history
        for worker, log in workers:
            self._workers.add(worker, self._log_of(worker.process, log))

    def _note(self, loss: Loss) -> None:
        """Record the loss in the job's history if the driver, which normally does so, is too busy."""
        if loss.kind == "node":
            self._end_with_node()
            return
        number = len(self._workers.losses)

        def unless_taken() -> None:
            if self._taken < number and self._history is not None:
                hang = loss.kind in ("hung", "resumed")
                cause = "hang" if hang else "out of memory" if loss.out_of_memory else "crash"
                self._history.record.remote([loss_event(loss, cause, "found; the driver does not answer")])

        asyncio.get_running_loop().call_later(TAKEN_WITHIN, unless_taken)

    def _end_with_node(self) -> None:
        """End the workers at once, and this agent when the driver had time to ask for the news.

        Ray's own processes do not always notice that their node is gone, and the ranks may be started elsewhere.
        """
        for process in self._workers.processes:
            kill(process)
        asyncio.get_running_loop().call_later(TAKEN_WITHIN, os._exit, 1)

    async def next_losses(self, seen: int) -> list[Loss]:
        """Wait for losses after the first `seen`. The driver calls this again and again."""
        watch, self._taken = self._workers, max(self._taken, seen)
        while len(watch.losses) <= seen:
            await watch.changed.wait()
        return watch.losses[seen:]

    async def loss_of(self, process: Process, within: float) -> Loss | None:
        """How a worker was lost. Waits for it: a call may fail before this agent notices the loss."""
        watch, deadline = self._workers, time.monotonic() + within
        while (found := watch.loss_of(process)) is None and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(watch.changed.wait(), left)
        return found

    async def kill(self, processes: Iterable[Process]) -> None:
        """Kill processes that Ray was told to kill: at once if they hang, else if they have not ended soon.

        Answered when they have ended, or a moment after they were killed.
        """
        loop, processes = asyncio.get_running_loop(), list(processes)
        for process in processes:
            loop.call_later(0 if self._hangs(process) else KILL_AFTER, kill, process)
        deadline = loop.time() + KILL_AFTER + 1.0
        while any(process.alive() for process in processes) and loop.time() < deadline:
            await asyncio.sleep(0.01)

    def _hangs(self, process: Process) -> bool:
        return self._workers.is_hung(process) or process.state() == "stopped"

    async def forget(self, processes: Iterable[Process]) -> None:
        """Drop the logs of workers whose group is shut down. Workers that still live count as ended in order."""
        processes = list(processes)
        for process in filter(self._hangs, processes):  # Ray asks it to end, and kills it only after 5 s
            kill(process)
        self._workers.forget(processes)
        for process in processes:
            self._logs.pop(process, None)
            self._followers.pop(process, None)
            if process.alive():  # a worker that died before did not end in order
                remember(self._dismissed, process)

    async def observe(self, workers: Iterable[tuple[Process, int]]) -> list[tuple[bool, list[Call]]]:
        """Whether each worker lives, and its calls."""
        found = []
        for process, log in workers:
            reader = self._log_of(process, log)
            found.append((process.alive(), reader.calls() if reader else []))
        return found

    async def look(self, workers: Iterable[tuple[Process, int]], driver: Process | None = None) -> NodeSight:
        """The state and recent calls of these workers, and the machine's load. Only the driver's node gets `driver`."""
        return NodeSight(
            processes=tuple(self._sight_of(process, log) for process, log in workers),
            driver=driver.state() if driver is not None else "",
            machine=this_machine(),
        )

    def _sight_of(self, process: Process, log: int) -> ProcessSight:
        state = process.state()
        if state == "running" and self._workers.is_hung(process):
            state = "hung"
        follower = self._followers.get(process)
        if follower is None and (reader := self._log_of(process, log)) is not None:
            follower = self._followers[process] = CallFollower(reader)
        if follower is None:
            return ProcessSight(state=state)
        return ProcessSight(state=state, calls=follower.summary(time.time(), state != "dead"))

    def _log_of(self, process: Process, log: int) -> CallReader | None:
        if process not in self._logs and process.alive():
            try:
                self._logs[process] = CallReader(process.pid, log)
            except (OSError, ValueError):  # the worker has just ended, or its system has no such memory
                return None
        return self._logs.get(process)

    async def ended(self, process: Process) -> bool:
        """Wait until a process of this node ends. True if its group was shut down."""
        while process.alive():
            await asyncio.sleep(LOOK_EVERY)
        await asyncio.sleep(LOOK_EVERY)  # the driver calls `forget` while it ends the processes
        return process in self._dismissed

    # -- channels --------------------------------------------------------------------------------------

    async def keep(self, name: str, namespace: str, cls: type) -> Any:
        """Start a named actor on this node, or find it. It lives as long as this agent, and so as long as the job."""
        # Ray ends an actor when the handle that made it is gone. So the agent keeps that handle, and never replaces
        # it by a handle that only found the actor.
        found = self._kept.get(name)
        if found is not None and await self._is_ready(name, found):
            return found
        if name not in self._kept:
            actor = ray.remote(num_cpus=0, max_concurrency=100_000)(cls)
            here = on_node(ray.get_runtime_context().get_node_id())
            self._kept[name] = actor.options(
                name=name, namespace=namespace, get_if_exists=True, scheduling_strategy=here
            ).remote()
        made = self._kept[name]
        if not await self._is_ready(name, made):
            raise ClusterError(code="RE112", what=f"the process of {name!r} ended while it started")
        return made

    async def _is_ready(self, name: str, kept: Any) -> bool:
        """Wait until a kept actor has started, and return whether it lives. Forgets a dead one."""
        try:
            await kept.__ray_ready__.remote()
        except ray.exceptions.RayActorError:
            if self._kept.get(name) is kept:
                del self._kept[name]
                ray.kill(kept)  # Ray finds a dead actor by its name until then
            return False
        return True

    async def adopt(self, *values: Any) -> list[Any]:
        """Put values into the node's object store. They outlive the processes that made them."""
        loop = asyncio.get_running_loop()  # a put into a full store waits, and the agent must not
        return [await loop.run_in_executor(None, ray.put, value) for value in values]

    # -- ports -----------------------------------------------------------------------------------------

    async def lease_ports(
        self, count: int = 1, consecutive: bool = False, owner: Owner | None = None
    ) -> list[int]:
        """Lease free ports. The owner holds them until it releases them or ends."""
        if owner is not None and self._undecided.was_withdrawn(owner):
            return []
        ports = self._shelf.take(count, consecutive, owner)
        self._keep_watch()
        return ports

    async def release_lease(self, owner: Owner) -> None:
        """Release the ports of an owner. Not by number: a released port may belong to another owner by now."""
        self._shelf.release_owner(owner)

    async def withdraw_lease(self, owner: Owner) -> None:
        """Release the ports of an owner that no longer waits, or refuse its request if that comes later."""
        if not self._shelf.release_owner(owner):
            self._undecided.withdraw(owner)

    # -- locks -----------------------------------------------------------------------------------------

    async def acquire(
        self, owner: Owner, devices: Sequence[Device], timeout: float, hold_for: float | None
    ) -> Decision:
        """Wait for the devices, at most `timeout` seconds."""
        if self._succeeds:
            raise ClusterError(
                code="RE114",
                what="devices of this node cannot be locked any more",
                why="roost's agent there was killed, and only it knew which locks are held",
                remedy="end the job, and start it again",
            )
        if self._undecided.was_withdrawn(owner):
            raise ClusterError(code="RE112", what="the request for this lock was withdrawn")
        answer, now = self._undecided.add(owner), time.monotonic()
        self._tell(self._locks.request(owner, devices, now, now + timeout, hold_for))
        self._keep_watch()
        return await answer

    async def release_lock(self, owner: Owner, fence: int) -> None:
        self._tell(self._locks.release(owner, fence, time.monotonic()))

    async def withdraw(self, owner: Owner) -> None:
        """Drop the request or lock of an owner that no longer waits, or refuse its request if that comes later."""
        if owner not in self._undecided and owner not in self._locks.owners:
            self._undecided.withdraw(owner)
        self._tell(self._locks.withdraw(owner, time.monotonic()))
        self._undecided.drop(owner)

    async def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        """The lock that is held on the device, and for how many seconds."""
        found = self._locks.hold_on(device)
        return None if found is None else (found, time.monotonic() - found.since)

    def _tell(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._undecided.decide(decision.owner, decision)

    # -- owners ----------------------------------------------------------------------------------------

    def _keep_watch(self) -> None:
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """Release the ports and locks of ended processes, and time requests out, until no owner or request is left."""
        while (owners := self._owners_by_process()) or self._locks.waiting:
            for process, theirs in owners.items():
                if not process.alive():
                    self._release_all(process, theirs)
            self._tell(self._locks.tick(time.monotonic()))
            await asyncio.sleep(LOOK_EVERY)

    def _release_all(self, process: Process, theirs: Iterable[Owner]) -> None:
        """Free the ports and locks of a process that has ended, and drop its requests."""
        for owner in theirs:
            self._shelf.release_owner(owner)
            self._undecided.drop(owner)
        self._tell(self._locks.owner_died(process, time.monotonic()))

    def _owners_by_process(self) -> dict[Process, list[Owner]]:
        """The owners whose processes run on this node."""
        found: dict[Process, list[Owner]] = {}
        for owner in [*self._shelf.owners, *self._locks.owners]:
            if isinstance(owner, Owner) and owner.process is not None and not owner.process.elsewhere:
                found.setdefault(owner.process, []).append(owner)
        return found


def _vendor() -> str | None:
    """The kind of accelerator that Ray calls `GPU` here, by files of its driver; None without such files."""
    traces = {
        "nvidia_gpu": "/proc/driver/nvidia",
        "amd_gpu": "/dev/kfd",
        "musa_gpu": "/dev/mtgpu.0",
        "kunlun_xpu": "/dev/xpu0",
        "intel_gpu": "/sys/module/xe",
    }
    return next((name for name, trace in traces.items() if Path(trace).exists()), None)
