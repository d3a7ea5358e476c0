"""One small actor per node and job: it says what the node is, holds ports and keeps locks there."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from roost.engine.locks.lock_table import Decision, Device, Holding, LockTable
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.owner import Owner, Process

SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
LOOK_EVERY = 0.3  # seconds


def agent_name(node_id: str) -> str:
    return f"agent:{node_id[:16]}"


class NodeAgent:
    """Asynchronous: who waits for something keeps nobody else from being answered."""

    def __init__(self) -> None:
        self._shelf = PortShelf()
        self._locks = LockTable()
        self._answers: dict[Owner, asyncio.Future[Decision]] = {}  # of those who wait for a lock
        self._watcher: asyncio.Task[None] | None = None

    async def facts(self, visible_variables: Iterable[str]) -> dict[str, Any]:
        """What only a process on the node can tell."""
        return {
            "hostname": socket.gethostname(),
            "declared_rank": os.environ.get("ROOST_NODE_RANK"),
            "accelerator_type": os.environ.get("ROOST_ACCELERATOR_TYPE") or _vendor(),
            "search_paths": {name: os.environ[name] for name in SEARCH_PATHS if name in os.environ},
            "visible": {
                name: value for name in visible_variables if (value := _raylet_variable(name)) is not None
            },
            "pid": os.getpid(),
        }

    # -- ports -----------------------------------------------------------------------------------------

    async def lease_ports(
        self, count: int = 1, consecutive: bool = False, owner: Owner | None = None
    ) -> list[int]:
        """Ports that are free now and stay the owner's until it releases them or ends."""
        ports = self._shelf.take(count, consecutive, owner)
        self._keep_watch()
        return ports

    async def release_ports(self, ports: Iterable[int]) -> None:
        self._shelf.release(ports)

    async def release_lease(self, owner: Owner) -> None:
        """By owner and not by number: a port that was given back may be somebody else's by now."""
        self._shelf.release_owner(owner)

    # -- locks -----------------------------------------------------------------------------------------

    async def acquire(
        self, owner: Owner, devices: Sequence[Device], timeout: float, hold_for: float | None
    ) -> Decision:
        """Waits for the devices, at most so long."""
        answer = self._answers[owner] = asyncio.get_running_loop().create_future()
        now = time.monotonic()
        self._tell(self._locks.request(owner, devices, now, now + timeout, hold_for))
        self._keep_watch()
        return await answer

    async def release_lock(self, owner: Owner, fence: int) -> None:
        self._tell(self._locks.release(owner, fence, time.monotonic()))

    async def withdraw(self, owner: Owner) -> None:
        """Nobody waits for the answer any more."""
        self._tell(self._locks.withdraw(owner, time.monotonic()))
        self._forget(owner)

    async def holding(self, device: Device) -> tuple[Holding, float] | None:
        """Who has the device, and for how long."""
        found = self._locks.holding(device)
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
        """Look at every process that owns or wants something, while there are any."""
        while (owners := self._owners_by_process()) or self._locks.waiting:
            for process, theirs in owners.items():
                if not process.alive():
                    self._bury(process, theirs)
            self._tell(self._locks.tick(time.monotonic()))
            await asyncio.sleep(LOOK_EVERY)

    def _bury(self, process: Process, theirs: Iterable[Owner]) -> None:
        """What the dead had is free, and nobody is told what they waited for."""
        for owner in theirs:
            self._shelf.release_owner(owner)
            self._forget(owner)
        self._tell(self._locks.owner_died(process, time.monotonic()))

    def _owners_by_process(self) -> dict[Process, list[Owner]]:
        """Those whose processes are on this node."""
        found: dict[Process, list[Owner]] = {}
        for owner in [*self._shelf.owners, *self._locks.owners]:
            if isinstance(owner, Owner) and owner.process is not None and not owner.process.elsewhere:
                found.setdefault(owner.process, []).append(owner)
        return found


def _raylet_variable(name: str) -> str | None:
    """A variable as the node was started with; Ray changes some of them for its workers."""
    try:
        environ = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{name}=".encode()
    return next((entry[len(prefix) :].decode() for entry in environ if entry.startswith(prefix)), None)


def _vendor() -> str | None:
    """Which accelerator Ray's `GPU` stands for here, by the driver's traces; None when none is found."""
    traces = {
        "nvidia_gpu": "/proc/driver/nvidia",
        "amd_gpu": "/dev/kfd",
        "musa_gpu": "/dev/mtgpu.0",
        "kunlun_xpu": "/dev/xpu0",
        "intel_gpu": "/sys/module/xe",
    }
    return next((name for name, trace in traces.items() if Path(trace).exists()), None)
