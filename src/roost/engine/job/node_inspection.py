"""The methods of a node's agent for shell commands: they read logs and processes, and end processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roost.engine.connection.actors import logs_folder
from roost.engine.health.machine_facts import MachineFacts
from roost.engine.health.machine_inspection import inspect_machine
from roost.engine.job.job_folder import jobs_folder, read_processes
from roost.engine.job.worker_watch import Loss, WatchedWorker, loss_at_start
from roost.engine.processes import keeper
from roost.engine.processes.log_files import LogPiece, LogPosition, logs_of, read_logs
from roost.engine.processes.process_facts import Process, process_of, raylet_pid
from roost.engine.processes.python_stacks import ProcessStacks, stacks_of

LOOK_EVERY = 0.2  # seconds


class NodeInspection:
    """The agent may belong to a job, or to the command. Threads read files, so a slow disk delays no other request."""

    async def read_logs(self, positions: Sequence[LogPosition], wait: float = 0.0) -> list[LogPiece]:
        """A piece of each file. Waits at most `wait` seconds until a file has something new."""
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            pieces = await asyncio.to_thread(read_logs, positions)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or any(piece.data for piece in pieces):
                return pieces
            await asyncio.sleep(min(LOOK_EVERY, left))

    async def stacks(self, processes: Sequence[Process]) -> list[ProcessStacks]:
        return await asyncio.to_thread(stacks_of, processes)

    async def states(self, processes: Sequence[Process]) -> list[str]:
        """The state of each process of this node: "running", "stopped" or "dead"."""
        return [process.state() for process in processes]

    async def identify(self, pids: Sequence[int]) -> list[tuple[Process, tuple[str, ...]]]:
        """Living processes by their numbers, with the files of their output."""
        return [(process_of.__wrapped__(pid), logs_of(pid, logs_folder())) for pid in pids]

    async def loss_at_start(self, worker: WatchedWorker, code: int | None) -> Loss:
        """How a process of this node ended that has reported nothing yet. Its logs are those named after its pid."""
        worker = replace(worker, logs=logs_of(worker.process.pid, logs_folder()))
        return await asyncio.to_thread(loss_at_start, worker, code)

    async def families(self, processes: Sequence[Process]) -> list[Process]:
        """The living processes among these, and their living descendants."""
        found = await asyncio.to_thread(keeper.family, {one.pid: one.started for one in processes})
        return [Process(pid=pid, started=started) for pid, started in found.items()]

    async def end(self, processes: Sequence[Process]) -> None:
        """Kill the processes and their descendants, including stopped ones."""
        roots = {one.pid: one.started for one in processes}
        await asyncio.to_thread(keeper.kill_families, roots, {1, os.getpid(), os.getppid(), raylet_pid()})

    async def recorded(self, job: str) -> tuple[Mapping[str, Any], list[dict[str, Any]]] | None:
        """The last run of a job and its processes, from the job's folder on this node."""
        return await asyncio.to_thread(read_processes, job)

    async def clock(self) -> float:
        return time.time()

    async def inspect(self) -> MachineFacts:
        return await asyncio.to_thread(inspect_machine, jobs_folder(), raylet_environment())


def raylet_environment() -> dict[str, str]:
    """The environment of the raylet: Ray changes some variables for its workers."""
    lines = keeper.contents(f"/proc/{raylet_pid()}/environ").decode(errors="replace").split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)
