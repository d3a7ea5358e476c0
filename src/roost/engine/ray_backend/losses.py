"""Finds out why workers were lost, and which nodes are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray

from roost.engine.backend import GroupOrder
from roost.engine.job.worker_watch import Loss
from roost.engine.ray_backend.ray_workers import RayWorkers

CAUSE_WITHIN = 1.0  # seconds in which Ray says whether it killed a process for want of memory


def causes_of(losses: Sequence[Loss], groups: Mapping[str, tuple[GroupOrder, RayWorkers]]) -> list[str]:
    """Why each process was lost. Ray is asked, all at once, about those that may have been short of memory."""
    asked: dict[int, Any] = {}
    for index, loss in enumerate(losses):
        killed = loss.kind == "ended" and (loss.status is None or loss.status & 0x7F == 9)
        if killed and not loss.out_of_memory:
            assert loss.worker is not None
            handle = groups[loss.worker.group][1].handles.get(loss.worker.rank)
            if handle is not None:
                asked[index] = handle._roost_seconds.remote("")
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=CAUSE_WITHIN)
    return [
        "hang"
        if loss.kind in ("hung", "resumed")
        else "out of memory"
        if loss.out_of_memory or (index in asked and _was_short_of_memory(asked[index]))
        else "crash"
        for index, loss in enumerate(losses)
    ]


def dead_nodes(table: Iterable[Mapping[str, Any]], ranks: Mapping[str, int]) -> set[int]:
    """The ranks of the nodes that Ray's node table calls dead.

    A node that the table does not have is not lost: Ray keeps dead nodes in it, and an answer may be incomplete.
    """
    return {ranks[node["NodeID"]] for node in table if node["NodeID"] in ranks and not node["Alive"]}


def _was_short_of_memory(reference: Any) -> bool:
    try:
        ray.get(reference, timeout=0)
    except ray.exceptions.OutOfMemoryError:
        return True
    except ray.exceptions.RayError as error:
        return "running low on memory" in str(error)
    return False
