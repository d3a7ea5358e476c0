"""From a job and an inventory to a plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from roost.config.layout import Layout
from roost.errors import ConfigurationError, Finding
from roost.inventory.inventory import Inventory
from roost.placement.strategies import (
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementStrategy,
    inventory_of,
)
from roost.planning.checks import check
from roost.planning.compiler import JobCompiler
from roost.planning.component_placement import ComponentPlacement
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan


def plan(
    job: Any,
    inventory: Any,
    *,
    overrides: Sequence[str] = (),
    placement: type[ComponentPlacement] = ComponentPlacement,
) -> Plan:
    """Place every component of a job. Everything that is wrong is raised together.

    `job` is a path, a dict, a `DictConfig` or a `Layout`; its node groups are applied to the inventory. Pass
    `placement=ModelParallelComponentPlacement` for jobs whose program uses that class.
    """
    with _collector_paused():
        return _planned(placement.compiler(job, inventory_of(inventory), overrides))


def plan_granted(layout: Layout, inventory: Inventory, ranks: Sequence[int]) -> Plan:
    """The plan of a layout whose pool is exactly these resource ranks."""
    compiler = JobCompiler(layout, inventory)
    compiler.granted = ranks
    return _planned(compiler)


def _planned(compiler: JobCompiler) -> Plan:
    planned = compiler.compiled()
    layout = compiler.job.layout
    advice = check(planned, layout.components if layout else ())
    return replace(planned, findings=(*planned.findings, *advice))


def everywhere(inventory: Inventory) -> PlacementStrategy:
    """A process on every accelerator, or on every node where there are none."""
    if inventory.num_accelerators:
        return PackedPlacementStrategy(0, inventory.num_accelerators - 1)
    return NodePlacementStrategy(range(len(inventory.nodes)))


def plan_one(name: str, strategy: Any, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """A plan of one component, placed by a strategy: anything with `get_placement`."""
    if not hasattr(strategy, "get_placement"):
        raise ConfigurationError(
            Finding(
                code="RP105",
                what=f"{strategy!r} is not a placement strategy"[:200],
                remedy="pass one, such as roost.PackedPlacementStrategy(0, 3), "
                "or launch a plan: cluster.launch(roost.plan(job, cluster), workers)",
            )
        )
    members = tuple(strategy.get_placement(inventory, isolate_accelerator))
    groups = getattr(strategy, "groups", {})
    component = ComponentPlan(
        name=name,
        node_groups=tuple(dict.fromkeys(place.node_group_label for place in members)),
        members=members,
    )
    return Plan(inventory=inventory.joined(groups), components={name: component})


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Records of a plan form no cycles; looking for some among a million of them is most of the work."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
