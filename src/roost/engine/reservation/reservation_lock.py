"""A lock on reserving: one job of a cluster reserves at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from roost.engine.connection.actors import NAMESPACE, on_node
from roost.errors import Finding, ReservationError


class _LockHolder:
    """Does nothing: the name of the actor is the lock."""


@contextmanager
def reserving(job: str, node_id: str, deadline: float) -> Iterator[None]:
    """Hold the lock in this block. Without it, the fillers of two jobs would take each other's accelerators.

    A named actor is the lock: Ray keeps its name unique from its creation on, and frees it when the job that
    created it ends, however it ends. The actor is mostly killed before Ray has started its process.
    """
    actor = ray.remote(num_cpus=0, scheduling_strategy=on_node(node_id))(_LockHolder)
    while True:
        try:
            handle = actor.options(name="reserving", namespace=NAMESPACE).remote()
            break
        except ValueError:
            if time.monotonic() > deadline:
                raise ReservationError(
                    Finding(
                        code="RE112",
                        what=f"job {job!r} did not get its turn to reserve",
                        why="another job on this cluster is reserving",
                        remedy="try again",
                    )
                ) from None
            time.sleep(0.02)
    try:
        yield
    finally:
        ray.kill(handle)
