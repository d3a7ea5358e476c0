"""The agent of a job on one node: a small actor that reports facts, holds ports and grants locks."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from roost.engine.locks.lock_table import Decision, Device, DeviceHold, LockTable
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.owner import Owner
from roost.engine.processes.process_facts import Process
from roost.engine.workers.call_log import Call, CallReader

LOOK_EVERY = 0.3  # seconds


def agent_name(node_id: str) -> str:
    """The name of the agent's actor, in the namespace of its job."""
    return f"agent:{node_id[:16]}"


class NodeAgent:
    """Asynchronous: waiting requests do not block other requests."""

    def __init__(self) -> None:
        self._shelf = PortShelf()
        self._locks = LockTable()
        self._answers: dict[Owner, asyncio.Future[Decision]] = {}  # of undecided lock requests
        self._watcher: asyncio.Task[None] | None = None
        self._logs: dict[Process, CallReader] = {}  # kept, so that calls of a dead worker can still be read

    async def facts(self, visible_variables: Iterable[str], search_paths: Iterable[str]) -> dict[str, Any]:
        """Facts that only a process on the node can read."""
        return {
            "hostname": socket.gethostname(),
            "declared_rank": os.environ.get("ROOST_NODE_RANK"),
            "accelerator_type": os.environ.get("ROOST_ACCELERATOR_TYPE") or _vendor(),
            "search_paths": {name: os.environ[name] for name in search_paths if name in os.environ},
            "visible": {
                name: value for name in visible_variables if (value := _raylet_variable(name)) is not None
            },
            "pid": os.getpid(),
        }

    # -- workers ---------------------------------------------------------------------------------------

    async def follow(self, workers: Iterable[tuple[Process, int]]) -> None:
        """Keep the logs of these workers of the node."""
        for process, log in workers:
            self._log_of(process, log)

    async def forget(self, processes: Iterable[Process]) -> None:
        """Drop the logs of workers whose group has ended."""
        for process in processes:
            self._logs.pop(process, None)

    async def observe(self, workers: Iterable[tuple[Process, int]]) -> list[tuple[bool, list[Call]]]:
        """Of each worker: whether it lives, and its calls."""
        found = []
        for process, log in workers:
            reader = self._log_of(process, log)
            found.append((process.alive(), reader.calls() if reader else []))
        return found

    def _log_of(self, process: Process, log: int) -> CallReader | None:
        if process not in self._logs and process.alive():
            try:
                self._logs[process] = CallReader(process.pid, log)
            except (OSError, ValueError):  # it has just ended, or its system has no such memory
                return None
        return self._logs.get(process)

    # -- ports -----------------------------------------------------------------------------------------

    async def lease_ports(
        self, count: int = 1, consecutive: bool = False, owner: Owner | None = None
    ) -> list[int]:
        """Ports that were free. The owner holds them until it releases them or ends."""
        ports = self._shelf.take(count, consecutive, owner)
        self._keep_watch()
        return ports

    async def release_ports(self, ports: Iterable[int]) -> None:
        self._shelf.release(ports)

    async def release_lease(self, owner: Owner) -> None:
        """By owner and not by number: a released port may belong to another owner by now."""
        self._shelf.release_owner(owner)

    # -- locks -----------------------------------------------------------------------------------------

    async def acquire(
        self, owner: Owner, devices: Sequence[Device], timeout: float, hold_for: float | None
    ) -> Decision:
        """Wait for the devices, at most `timeout` seconds."""
        answer = self._answers[owner] = asyncio.get_running_loop().create_future()
        now = time.monotonic()
        self._tell(self._locks.request(owner, devices, now, now + timeout, hold_for))
        self._keep_watch()
        return await answer

    async def release_lock(self, owner: Owner, fence: int) -> None:
        self._tell(self._locks.release(owner, fence, time.monotonic()))

    async def withdraw(self, owner: Owner) -> None:
        """The owner no longer waits for the answer."""
        self._tell(self._locks.withdraw(owner, time.monotonic()))
        self._forget(owner)

    async def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        """The lock that is held on the device, and for how many seconds."""
        found = self._locks.hold_on(device)
        return None if found is None else (found, time.monotonic() - found.since)

    def _tell(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            answer = self._answers.pop(decision.owner, None)
            if answer is not None and not answer.done():
                answer.set_result(decision)

    def _forget(self, owner: Owner) -> None:
        answer = self._answers.pop(owner, None)
        if answer is not None:
            answer.cancel()

    # -- owners ----------------------------------------------------------------------------------------

    def _keep_watch(self) -> None:
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """Check the processes of all owners and requests, until none is left."""
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
            self._forget(owner)
        self._tell(self._locks.owner_died(process, time.monotonic()))

    def _owners_by_process(self) -> dict[Process, list[Owner]]:
        """The owners whose processes run on this node."""
        found: dict[Process, list[Owner]] = {}
        for owner in [*self._shelf.owners, *self._locks.owners]:
            if isinstance(owner, Owner) and owner.process is not None and not owner.process.elsewhere:
                found.setdefault(owner.process, []).append(owner)
        return found


def _raylet_variable(name: str) -> str | None:
    """A variable of the raylet, as the node was started: Ray changes some variables for its workers."""
    try:
        environ = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{name}=".encode()
    return next((entry[len(prefix) :].decode() for entry in environ if entry.startswith(prefix)), None)


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
