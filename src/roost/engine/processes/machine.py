"""The load and the memory of this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from roost.engine.processes import keeper

_PER_GIB = 1 << 20  # kibibytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The load and memory of a machine. Nodes on one machine report the same."""

    load: float  # processes that run or wait for a CPU, over the last minute
    cpus: int
    free_gib: float  # memory that processes could still get
    memory_gib: float


def this_machine() -> Machine:
    memory: dict[str, float] = {}
    for line in keeper.contents("/proc/meminfo").decode().splitlines():
        name, _, amount = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            memory[name] = int(amount.split()[0]) / _PER_GIB
    return Machine(
        load=round(os.getloadavg()[0], 2),
        cpus=os.cpu_count() or 0,
        free_gib=round(memory.get("MemAvailable", 0.0), 1),
        memory_gib=round(memory.get("MemTotal", 0.0), 1),
    )
