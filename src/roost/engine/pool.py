"""A pool: one reservation of accelerators in a stable order, cut among the roles of a layout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roost.config.job import read_job
from roost.config.layout import Layout
from roost.config.ranks import ranges
from roost.engine.position import Position
from roost.errors import ConfigurationError, Finding, PlacementError, error_for, nearest
from roost.inventory.resources import Resources
from roost.placement.strategies import FlexiblePlacementStrategy, PlacementStrategy
from roost.planning.plan import Plan
from roost.planning.planner import plan

if TYPE_CHECKING:
    from roost.engine.cluster import Cluster


class Pool:
    """The accelerators of a layout, held until `release` or the end of the job.

    Positions are in the order of nodes, then of accelerator numbers, whatever order Ray granted them in.
    """

    def __init__(self, cluster: Cluster, layout: Layout, plan: Plan, positions: Sequence[Position]) -> None:
        self.cluster, self.layout, self.plan = cluster, layout, plan
        self.positions = tuple(positions)

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"<pool of {len(self)} accelerators, {self.layout.mode.name.lower()}>"

    def role(self, name: str) -> tuple[Position, ...]:
        """The accelerators of a role: `actor`, `critic` or `rollout`."""
        slices = self.layout.slices()
        if name not in slices:
            raise PlacementError(
                Finding(code="RP106", what=f"unknown role {name!r}", remedy=nearest(name, slices))
            )
        chosen = slices[name]
        return self.positions[chosen.start : chosen.stop]

    def strategy(self, component: str) -> PlacementStrategy:
        """Places the processes of a component of the plan where the plan has them."""
        members = self._component(component).members
        firsts = {slot.node.rank: slot.first for slot in _resources(self.cluster, self.layout).slots}
        ranks = [[firsts[place.cluster_node_rank] + device for device in place.hardware] for place in members]
        return FlexiblePlacementStrategy(ranks, self.layout.node_group or None)

    def shares(self, component: str) -> list[float]:
        """What each process of a component is charged of each of its accelerators."""
        size = self._component(component).world_size
        return [self.plan.share_of(component, rank) for rank in range(size)]

    def _component(self, name: str) -> Any:
        if name not in self.plan.components:
            raise PlacementError(
                Finding(
                    code="RP106",
                    what=f"nothing runs as {name!r} in this pool",
                    why=f"its mode is {self.layout.mode.name.lower()}",
                    remedy=nearest(name, self.plan.components),
                )
            )
        return self.plan.components[name]

    def release(self) -> None:
        """Give the accelerators back. End what runs on them first."""
        self.cluster.give_back_positions(self.positions)
        self.positions = ()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def layout_of(source: Any) -> Layout:
    """A layout from whatever describes one."""
    if isinstance(source, Layout):
        return source
    is_job = isinstance(source, (str, os.PathLike)) or (isinstance(source, Mapping) and "cluster" in source)
    if not is_job:
        return Layout.from_args(source)
    job, findings = read_job(source)
    if any(finding.severity == "error" for finding in findings):
        raise error_for(findings)
    if job.layout is None:
        raise ConfigurationError(
            job.document.finding(
                "RC102",
                "the job has no layout",
                ("cluster", "layout"),
                key=True,
                remedy="write one under `cluster`, or launch its components by their placements",
            )
        )
    own = {name: share for name, share in job.layout.shares.items() if name in job.layout.roles}
    return replace(job.layout, shares=own)


def open_pool(cluster: Cluster, layout: Layout, timeout: float) -> Pool:
    """Reserve what the layout needs, find out what was granted, and plan on exactly that."""
    resources = _resources(cluster, layout)
    wanted = None
    if layout.accelerators is not None or not 0 < layout.reserved <= resources.total or resources.bare:
        planned = plan(layout, cluster.inventory)  # says what is missing, if anything is
        wanted = [(device.node, device.number) for device in planned.occupancy]
        if not wanted:
            return Pool(cluster, layout, planned, ())
    nodes = [slot.node.rank for slot in resources.slots]
    firsts = {slot.node.rank: slot.first for slot in resources.slots}
    positions = sorted(
        cluster.take_positions(layout.reserved, nodes, wanted, timeout),
        key=lambda one: firsts[one.node] + one.device,
    )
    try:
        ranks = ranges([firsts[one.node] + one.device for one in positions])
        return Pool(cluster, layout, plan(replace(layout, accelerators=ranks), cluster.inventory), positions)
    except BaseException:
        cluster.give_back_positions(positions)
        raise


def _resources(cluster: Cluster, layout: Layout) -> Resources:
    return cluster.inventory.resources(layout.node_group or None)
