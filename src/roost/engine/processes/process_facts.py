"""The facts of a process: its number, when it started, whether it still runs, and what it owns."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from roost.engine.processes import keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, identified by its number and its start time: the system reuses numbers, but not with that start."""

    pid: int
    started: int  # clock ticks after the boot; 0 where the system does not tell
    elsewhere: str = ""  # where it runs, if not on this node: then its state cannot be read

    def alive(self) -> bool:
        """Whether the process lives, even if it is stopped. A zombie has ended."""
        return self.state() != "dead"

    def state(self) -> str:
        """`running`, `stopped` by a signal or a debugger, or `dead`."""
        found = _status(self.pid)
        if found is None or found.ended or found.start != self.started:
            return "dead"
        return "stopped" if found.stopped else "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of one port lease or lock. Without a process the job owns it, until the job ends."""

    process: Process | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(8))  # one process may own many
    who: str = field(default="", compare=False)  # for messages


def this_process() -> Process:
    return process_of(os.getpid())  # by pid, because a forked child is another process


@lru_cache(maxsize=4)
def process_of(pid: int) -> Process:
    found = _status(pid)
    return Process(pid=pid, started=found.start if found else 0)


def raylet_pid() -> int:
    """The number of the raylet that this process works for."""
    return int(os.environ.get("RAY_RAYLET_PID") or os.getppid())


def raylet_of(pid: int) -> int | None:
    """The number of the raylet that a process works for; None for other processes, and when the raylet has ended."""
    given = b"RAY_RAYLET_PID="  # to every worker; its parent is another process where workers are forked
    entries = keeper.contents(f"/proc/{pid}/environ").split(b"\0")
    raylet = next((int(one[len(given) :]) for one in entries if one.startswith(given)), None)
    return raylet if keeper.contents(f"/proc/{raylet}/comm").startswith(b"raylet") else None


def _status(pid: int) -> keeper.ProcessState | None:
    """The state of a process; None if there is no such process."""
    found = keeper.status_of(pid)
    if found is not None or Path("/proc/self/stat").exists():
        return found
    try:  # a system without these files, such as a Mac
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return keeper.ProcessState(ended=False, parent=0, start=0)
