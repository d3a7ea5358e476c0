"""A pool: one reservation of accelerators in a stable order, cut among the roles of a layout."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from roost.config.layout import Layout
from roost.config.supervise import RestartPolicy
from roost.engine.backend import Backend, PoolRequest, Position
from roost.engine.group import WorkerGroup
from roost.engine.workers.result import seconds_or
from roost.engine.workers.worker import START_WITHIN, GroupLauncher
from roost.errors import ClusterError, PlacementError, nearest, render
from roost.placement.placement import without_isolation
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan
from roost.planning.planner import PoolPlanner

if TYPE_CHECKING:
    from roost.engine.cluster import Cluster

log = logging.getLogger("roost")
RESERVE_WITHIN = 60.0  # seconds


class Pool(AbstractContextManager["Pool"]):
    """The accelerators of a layout, held until `release` or the end of the job.

    Positions are in the order of nodes, then of accelerator numbers, whatever order Ray granted them in.
    """

    def __init__(
        self, cluster: Cluster, backend: Backend, layout: Layout, plan: Plan, positions: Sequence[Position]
    ) -> None:
        self.cluster, self.layout, self.plan = cluster, layout, plan
        self._backend = backend
        self._positions: tuple[Position, ...] | None = tuple(positions)
        self._companions: list[WorkerGroup] = []  # groups that end with it

    @property
    def positions(self) -> tuple[Position, ...]:
        self._check_held()
        return self._positions or ()

    def _check_held(self) -> None:
        if self._positions is None:
            raise ClusterError(
                code="RE107", what="the pool was released", remedy="open another one: cluster.pool(layout)"
            )

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        size = "released pool" if self._positions is None else f"pool of {len(self)} accelerators"
        return f"<{size}, {self.layout.mode.name.lower()}>"

    def role(self, name: str) -> tuple[Position, ...]:
        """The accelerators of a role: `actor`, `critic` or `rollout`."""
        slices = self.layout.slices()
        if not isinstance(name, str) or name not in slices:
            raise PlacementError(
                code="RP106", what=f"unknown role {name!r}"[:200], remedy=nearest(str(name), slices)
            )
        chosen = slices[name]
        return self.positions[chosen.start : chosen.stop]

    def component(self, name: str) -> ComponentPlan:
        """The plan of a component that runs in this pool."""
        components = self.plan.components
        if not isinstance(name, str) or name not in components:
            raise PlacementError(
                code="RP106",
                what=f"nothing runs as {name!r} in this pool"[:200],
                why=f"its mode is {self.layout.mode.name.lower()}",
                remedy=nearest(str(name), components),
            )
        return components[name]

    def launch(
        self,
        launcher: GroupLauncher,
        component: str,
        name: str | None = None,
        timeout: float = START_WITHIN,
        isolate_accelerator: bool = True,
    ) -> WorkerGroup:
        """Start the processes of a component in their planned places, each with its share."""
        workers = {component: (launcher, name or component)}
        return self.launch_all(workers, timeout, isolate_accelerator)[component]

    def launch_all(
        self,
        workers: Mapping[str, tuple[GroupLauncher, str]],
        timeout: float = START_WITHIN,
        isolate_accelerator: bool = True,
    ) -> Mapping[str, WorkerGroup]:
        """Start several components at once, all or none: component to launcher and group name."""
        self._check_held()
        parts, plan = {name: self.component(name) for name in workers}, self.plan
        if not isolate_accelerator:
            counts = [node.accelerators.count for node in plan.inventory.nodes]
            seen = {
                name: replace(part, members=tuple(without_isolation(part.members, counts)))
                for name, part in parts.items()
            }
            plan = replace(plan, components={**plan.components, **seen})
        launched = self.cluster.launch_components(plan, workers, timeout)
        self._companions = [one for one in self._companions if one.is_running] + list(launched.values())
        return launched

    def end_with(self, group: WorkerGroup) -> None:
        """Make `release` end this group too, although the group holds no accelerator of the pool."""
        self._companions.append(group)

    def release(self) -> None:
        """End this process's groups on the accelerators, and give the accelerators back. May be called twice."""
        positions, self._positions = self._positions, None
        companions, self._companions = self._companions, []
        with ExitStack() as ending:  # one that fails keeps no other from ending
            if positions:
                ending.callback(self._backend.give_back_positions, positions)
            for group in reversed(
                companions
            ):  # ended in the order of their start: routers before their engines
                ending.callback(group.shutdown)

    def __exit__(self, *_: object) -> None:
        self.release()


def open_pool(
    cluster: Cluster,
    backend: Backend,
    layout: Layout,
    timeout: float,
    apart: bool,
    supervise: Mapping[str, RestartPolicy],
) -> Pool:
    """Reserve the accelerators that the layout needs, and plan the layout on exactly the granted ones."""
    within = seconds_or(RESERVE_WITHIN, timeout)
    planner = PoolPlanner(layout, backend.inventory, supervise)
    wanted = planner.asked_for()
    if wanted == []:
        return Pool(cluster, backend, layout, planner.plan_on([]), ())
    request = PoolRequest(
        count=layout.reserved, nodes=planner.nodes, named=wanted, timeout=within, apart=apart
    )
    taken = backend.take_positions(request)
    granted = {(one.node, one.device): one for one in taken}
    try:
        plan = planner.plan_on(list(granted))
    except BaseException:
        backend.give_back_positions(taken)
        raise
    if left_out := [finding for finding in plan.findings if finding.code == "RW109"]:
        log.warning("%s", render(left_out))
    return Pool(cluster, backend, layout, plan, [granted[one] for one in planner.in_order(list(granted))])
