"""Who holds a lease or a lock: a process of this node, or the job as a whole."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from roost.engine.workers import worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process. A pid is used again one day, a pid and its start are not."""

    pid: int
    started: int  # clock ticks after the boot; 0 where that cannot be known
    elsewhere: str = ""  # where it is, when that is not here: then it cannot be looked at

    def alive(self) -> bool:
        """A zombie has ended, whoever has still to collect it."""
        found = _look_up(self.pid)
        return found is not None and found[0] not in "ZX" and found[1] == self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One holding of something. Without a process it is the job's, and ends with the job."""

    process: Process | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(8))  # one process may hold many things
    who: str = field(default="", compare=False)  # in words


def this_process() -> Process:
    return _process(os.getpid())  # by pid, since a forked child is another


@lru_cache(maxsize=4)
def _process(pid: int) -> Process:
    found = _look_up(pid)
    return Process(pid=pid, started=found[1] if found else 0)


def in_words() -> str:
    """What to call this process in a message."""
    context = worker._starting  # before the environment, where an engine has other numbers
    group, rank = os.environ.get("ROOST_GROUP"), os.environ.get("RANK")
    if context is not None:
        group, rank = context.group, str(context.placement.rank)
    name = f"{group} rank {rank}" if group and rank else "the driver"
    return f"{name} (pid {os.getpid()})"


def _look_up(pid: int) -> tuple[str, int] | None:
    """Its state and start; None when there is no such process."""
    try:
        # The name in parentheses may hold anything, so what counts comes after the last one.
        after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return after[0], int(after[19])
    except (OSError, IndexError, ValueError):
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:  # no such files here, as on a Mac
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "R", 0
