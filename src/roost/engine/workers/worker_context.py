"""The worker that the calling code runs in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from roost.placement.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The group, rank and place of a worker."""

    group: str
    job: str
    placement: Placement
    world_size: int
    master_addr: str
    master_port: int
    node: str  # its node, for messages
    devices: tuple[str, ...]
    share: float | None = None  # its share of each of its accelerators, if a plan sets one
    generation: int = 0  # how often this rank was started before

    @property
    def name(self) -> str:
        return f"{self.group}:{self.placement.rank}"

    @property
    def seat(self) -> str:
        return seat_of(self.placement, self.node)


def seat_of(placement: Placement, node: str) -> str:
    """The node and devices of a process, for messages: `node 0 (10.0.0.1), accelerators 2,3`."""
    if not placement.hardware:
        return node
    noun = "accelerator" if placement.accelerator_type != "none" else "device"
    devices = ",".join(map(str, placement.hardware))
    return f"{node}, {noun}{'s' * (len(placement.hardware) > 1)} {devices}"


_current: WorkerContext | None = None


def current_worker() -> WorkerContext | None:
    """The worker that the calling code runs in; None in the driver and in processes that roost did not start."""
    return _current


def _become_worker(context: WorkerContext | None) -> None:
    """Set the current worker. Called in the worker's process before its class is constructed."""
    global _current
    _current = context


@contextmanager
def _running_as(context: WorkerContext | None) -> Iterator[None]:
    """Make this worker the current one inside the block. Blocks may nest: an inline worker may call another group."""
    outer = current_worker()
    _become_worker(context)
    try:
        yield
    finally:
        _become_worker(outer)


def describe_this_process() -> str:
    """A name for this process in messages: `actor rank 3 (pid 4711)`."""
    # The context comes before the environment, in which an inference engine sets ranks of its own.
    context = current_worker()
    group, rank = os.environ.get("ROOST_GROUP"), os.environ.get("RANK")
    if context is not None:
        group, rank = context.group, str(context.placement.rank)
    name = f"{group} rank {rank}" if group and rank else "the driver"
    return f"{name} (pid {os.getpid()})"
