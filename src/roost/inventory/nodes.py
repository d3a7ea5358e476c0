"""Nodes and their accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from roost.inventory.accelerators import AcceleratorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """The accelerators of one node, numbered from 0. A node holds one kind."""

    count: int
    type: str = AcceleratorType.NV_GPU.value
    model: str = ""
    memory_gib: float | None = None


NO_ACCELERATORS = Accelerators(count=0, type=AcceleratorType.NO_ACCEL.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, with its accelerators."""

    rank: int
    ip: str = ""
    hostname: str = ""
    cpus: int | None = None  # None: not known
    accelerators: Accelerators = NO_ACCELERATORS

    def __str__(self) -> str:
        return f"node {self.rank}" + (f" ({self.ip or self.hostname})" if self.ip or self.hostname else "")
