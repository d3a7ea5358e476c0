"""Faults on this machine: processes killed or stopped, nodes killed or cut off, memory filled, ports stolen.

Faults hit processes of this user on this machine, such as those of an embedded Ray. The same seed chooses the same
victims.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from roost.engine.processes import keeper
from roost.engine.processes.process_facts import raylet_of
from roost.engine.run import Run
from roost.engine.status import ProcessStatus

_HOLD_MEMORY = "import sys; held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096]); print(flush=True); sys.stdin.read()"


class Faults:
    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)

    def victim(self, run: Run, components: Sequence[str] = ()) -> ProcessStatus:
        """One of the living processes of a run, or of some of its components."""
        alive = [
            one
            for one in run.status()
            if one.state in ("idle", "busy") and (not components or one.component in components)
        ]
        if not alive:
            raise LookupError("no process of the run is alive")
        return self.random.choice(alive)

    def kill(self, process: ProcessStatus, number: int = signal.SIGKILL) -> None:
        os.kill(_pid(process), number)

    @contextmanager
    def stopped(self, process: ProcessStatus) -> Iterator[None]:
        """Stop a process inside the block, and continue it afterwards if it still exists."""
        pid = _pid(process)
        status = keeper.status_of(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if status is not None:
                keeper.send(pid, status.start, signal.SIGCONT)

    def kill_node(self, process: ProcessStatus) -> None:
        """Kill the Ray node that a process runs on."""
        raylet = raylet_of(_pid(process))
        if raylet is None:
            raise LookupError(f"pid {process.pid} is not a worker of a Ray node")
        os.kill(raylet, signal.SIGKILL)

    @contextmanager
    def cut_off(self, namespace: str, device: str = "eth0") -> Iterator[None]:
        """Cut a host that is a network namespace off from its network. Needs root."""
        command = ["ip", "-n", namespace, "link", "set", device]
        subprocess.run([*command, "down"], check=True, timeout=30)
        try:
            yield
        finally:
            subprocess.run([*command, "up"], check=True, timeout=30)

    @contextmanager
    def memory_filled(self, size: int) -> Iterator[None]:
        """Fill so many bytes of memory inside the block, with a process of its own."""
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLD_MEMORY, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdin
        assert holder.stdout
        try:
            if not holder.stdout.readline():
                raise MemoryError(f"{size:,} bytes could not be held: exit code {holder.wait()}")
            yield
        finally:
            holder.kill()
            holder.wait()
            holder.stdin.close()
            holder.stdout.close()

    @contextmanager
    def port_stolen(self, port: int, host: str = "") -> Iterator[None]:
        """Listen on a port leased to another process."""
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind((host, port))
            thief.listen()
            yield


def _pid(process: ProcessStatus) -> int:
    if process.pid is None:
        raise LookupError(f"{process.component} rank {process.rank} has no process")
    return process.pid
