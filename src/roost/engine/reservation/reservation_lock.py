"""Taking turns: one job of a cluster reserves at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from roost.engine.connection.discovery import on_node
from roost.engine.connection.ray_connection import NAMESPACE
from roost.errors import Finding, ReservationError


class _Turn:
    """Does nothing: its name is the lock."""


@contextmanager
def reserving(job: str, node_id: str, deadline: float) -> Iterator[None]:
    """One job reserves at a time, or the fillers of two would take each other's devices.

    A named actor is a lock: Ray keeps the name unique from the moment it is asked for, and frees it when the
    job that holds it ends, however it ends. It is not waited for, and mostly killed before it has a process.
    """
    turn = ray.remote(num_cpus=0, scheduling_strategy=on_node(node_id))(_Turn)
    while True:
        try:
            handle = turn.options(name="reserving", namespace=NAMESPACE).remote()
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
