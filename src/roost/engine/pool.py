"""A pool: one reservation of accelerators in a stable order, cut among the roles of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roost.config.layout import Layout
from roost.config.ranks import ranges
from roost.engine.cluster import Cluster
from roost.engine.group import START_WITHIN, GroupLauncher, WorkerGroup
from roost.engine.position import Position
from roost.engine.workers.result import seconds
from roost.errors import (
    ClusterError,
    Finding,
    PlacementError,
    RoostError,
    nearest,
)
from roost.inventory.resources import Resources
from roost.placement.strategies import FlexiblePlacementStrategy
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan
from roost.planning.planner import plan

RESERVE_WITHIN = 60.0  # seconds


class Pool:
    """The accelerators of a layout, held until `release` or the end of the job.

    Positions are in the order of nodes, then of accelerator numbers, whatever order Ray granted them in.
    """

    def __init__(self, cluster: Cluster, layout: Layout, plan: Plan, positions: Sequence[Position]) -> None:
        self.cluster, self.layout, self.plan = cluster, layout, plan
        self._positions: tuple[Position, ...] | None = tuple(positions)

    @property
    def positions(self) -> tuple[Position, ...]:
        self._check_held()
        return self._positions or ()

    def _check_held(self) -> None:
        if self._positions is None:
            raise ClusterError(
                Finding(
                    code="RE107",
                    what="the pool was released",
                    remedy="open another one: cluster.pool(layout)",
                )
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
                Finding(code="RP106", what=f"unknown role {name!r}"[:200], remedy=nearest(str(name), slices))
            )
        chosen = slices[name]
        return self.positions[chosen.start : chosen.stop]

    def component(self, name: str) -> ComponentPlan:
        """What the plan has of a component that runs here."""
        components = self.plan.components
        if not isinstance(name, str) or name not in components:
            raise PlacementError(
                Finding(
                    code="RP106",
                    what=f"nothing runs as {name!r} in this pool"[:200],
                    why=f"its mode is {self.layout.mode.name.lower()}",
                    remedy=nearest(str(name), components),
                )
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
        """The processes of a component where the plan has them, each told its share."""
        self._check_held()
        members = self.component(component).members
        firsts = _firsts(self.cluster, self.layout)
        ranks = [[firsts[place.cluster_node_rank] + device for device in place.hardware] for place in members]
        return launcher.launch(
            self.cluster,
            FlexiblePlacementStrategy(ranks, self.layout.node_group or None),
            name or component,
            isolate_accelerator,
            timeout,
            [self.plan.share_of(component, rank) for rank in range(len(members))],
        )

    def release(self) -> None:
        """End what this process runs on the accelerators, and give them back. May be called twice."""
        positions, self._positions = self._positions, None
        if positions:
            self.cluster.give_back_positions(positions)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def open_pool(cluster: Cluster, layout: Layout, timeout: float) -> Pool:
    """Reserve what the layout needs, find out what was granted, and plan on exactly that."""
    limit = seconds(timeout)
    resources = _resources(cluster, layout)
    wanted = None
    if layout.accelerators is not None or not 0 < layout.reserved <= resources.total or resources.bare:
        planned = plan(layout, cluster.inventory)  # says what is missing, if anything is
        wanted = [(device.node, device.number) for device in planned.occupancy]
        if not wanted:
            return Pool(cluster, layout, planned, ())
    nodes = [slot.node.rank for slot in resources.slots]
    firsts = _firsts(cluster, layout)
    positions = sorted(
        cluster.take_positions(layout.reserved, nodes, wanted, RESERVE_WITHIN if limit is None else limit),
        key=lambda one: firsts[one.node] + one.device,
    )
    ranks = [firsts[one.node] + one.device for one in positions]
    try:
        granted = plan(replace(layout, accelerators=ranges(ranks)), cluster.inventory)
    except BaseException as error:
        cluster.give_back_positions(positions)
        if isinstance(error, RoostError) and ranks != list(range(len(ranks))):
            raise type(error)(*[_with_ranks(finding, ranks) for finding in error.findings]) from None
        raise
    return Pool(cluster, layout, granted, positions)


def _with_ranks(finding: Finding, ranks: Sequence[int]) -> Finding:
    """The layout may fit the cluster, and not what others have left of it."""
    free = f"the first that are free are accelerators {ranges(ranks)}"
    return replace(finding, why=f"{finding.why}; {free}" if finding.why else free)


def _resources(cluster: Cluster, layout: Layout) -> Resources:
    return cluster.inventory.resources(layout.node_group or None)


def _firsts(cluster: Cluster, layout: Layout) -> dict[int, int]:
    """Resource rank of each node's first accelerator."""
    return {slot.node.rank: slot.first for slot in _resources(cluster, layout).slots}
