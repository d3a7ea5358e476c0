"""A lock on reserving: one job of a cluster reserves at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import ray

from roost.engine.connection.actors import NAMESPACE
from roost.engine.connection.cluster_watch import ask_head, cluster_is_gone
from roost.engine.job.agents import agent_of
from roost.errors import ReservationError


class _LockHolder:
    """Ray never constructs this actor: its name is the lock."""

    def __init__(self, never: None) -> None: ...


@contextmanager
def reserving(job: str, node_id: str, deadline: float) -> Iterator[None]:
    """Hold the lock in this block. Without it, the fillers of two jobs would take each other's accelerators.

    A named actor is the lock: Ray keeps its name unique from its creation on, and frees it when the process
    that created it ends, however it ends. Ray starts no process for it, since its argument never comes.
    """
    never = agent_of(job, node_id).never.remote()
    lock = ray.remote(num_cpus=0)(_LockHolder).options(name="roost:reserving", namespace=NAMESPACE)
    while True:
        try:
            handle = ask_head(partial(lock.remote, never))
            break
        except ValueError:
            if time.monotonic() > deadline:
                ray.cancel(never)
                raise ReservationError(
                    code="RE112",
                    what=f"job {job!r} did not get its turn to reserve",
                    why="another job on this cluster is reserving",
                    remedy="try again",
                ) from None
            time.sleep(0.02)
    try:
        yield
    finally:
        if not cluster_is_gone():
            ray.kill(handle)
            ray.cancel(never)
