"""Lets the processes of a job find its groups. The job's managers know them all."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from roost.engine.backend import GroupOrder
from roost.engine.connection.actors import answer
from roost.engine.connection.cluster_watch import check_cluster
from roost.engine.job.managers import CollectiveManager, Manager, NodeManager, WorkerManager
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.errors import ClusterError, nearest
from roost.planning.component_plan import AcceleratorKey, accelerators_of
from roost.planning.plan import Plan

LaunchedGroups = Mapping[str, tuple[GroupOrder, RayWorkers]]  # by name


class GroupRegistry:
    """`own` are the groups that this process has launched."""

    def __init__(self, job: str, managers: Mapping[type[Manager], Any], own: LaunchedGroups) -> None:
        self._job, self._managers, self._own = job, managers, own

    def register(self, plan: Plan | None, groups: Sequence[tuple[GroupOrder, RayWorkers]]) -> None:
        """Let the job's other processes find the groups, and the plan they come from."""
        collective, workers = self._managers[CollectiveManager], self._managers[WorkerManager]
        told = [
            workers.register_groups.remote({order.name: group.description(order) for order, group in groups})
        ]
        for order, group in groups:
            assert group.start is not None
            where = (group.start.master_addr, group.start.master_port)
            told.append(collective.register.remote(order.name, *where, len(order.placements)))
        if plan is not None:
            told.append(self._managers[NodeManager].add_plan.remote(plan.digest, pickle.dumps(plan)))
        answer(told, "registering the groups")

    def remove(self, name: str) -> None:
        self._managers[WorkerManager].remove_group.remote(name)
        self._managers[CollectiveManager].remove.remote(name)

    def taken(self, names: Sequence[str]) -> list[str]:
        """Those of the names under which a group is running."""
        manager = WorkerManager.get_proxy(self._job)
        there = manager.list_groups()
        return [name for name in names if name in there and _any_alive(manager.get_workers(name))]

    def description(self, name: str) -> dict[str, Any]:
        manager = WorkerManager.get_proxy(self._job)
        found = manager.get_group(name)
        if found is None:
            raise ClusterError(
                code="RE116",
                what=f"job {self._job!r} has no group {name!r}",
                remedy=nearest(name, manager.list_groups()),
            )
        return found

    def accelerators(self) -> set[AcceleratorKey]:
        """The accelerators of all groups of the job."""
        try:
            listed = WorkerManager.get_proxy(self._job).list_groups().values()
            groups = [group["placements"] for group in listed]
        except ClusterError:  # the manager was killed; this process still knows its own groups
            check_cluster()
            groups = [order.placements for order, _ in self._own.values()]
        return {key for placements in groups for key in accelerators_of(placements)}


def _any_alive(workers: Sequence[Any]) -> bool:
    """Whether a group still has a process. Workers end with the process that launched them."""
    refs = [worker.__ray_ready__.remote() for worker in workers]
    ready, busy = ray.wait(refs, num_returns=len(refs), timeout=2) if refs else ([], [])
    for ref in ready:
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError:
            continue
        return True
    return bool(busy)
