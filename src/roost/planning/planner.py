"""Makes plans: of a job, of a layout on granted accelerators, and of one component."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from roost.config.layout import Layout
from roost.errors import ConfigurationError, Finding
from roost.inventory.inventory import Inventory
from roost.inventory.resources import ACCELERATOR, BARE_NODE, Slot
from roost.placement.packed import PackedPlacementStrategy
from roost.placement.placement import make_placements
from roost.placement.strategies import NodePlacementStrategy, PlacementStrategy, inventory_of
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
    """Place every component of a job. One error holds all problems.

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
    """A process on every accelerator, or on every node if there are no accelerators."""
    if inventory.num_accelerators:
        return PackedPlacementStrategy(0, inventory.num_accelerators - 1)
    return NodePlacementStrategy(range(len(inventory.nodes)))


def plan_allocation(name: str, node: int, device: int | None, inventory: Inventory) -> Plan:
    """A plan of one process on a node, with one of its accelerators or none."""
    kind, held = (BARE_NODE, ()) if device is None else (ACCELERATOR, (device,))
    slot = Slot(inventory.nodes[node], "cluster", kind, 0, 1)
    members = tuple(make_placements([(slot, held)], isolate_accelerator=True))
    return Plan(inventory=inventory, components={name: ComponentPlan(name=name, members=members)})


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
    """Pause the garbage collector: the search for cycles among a million records, which form none, takes most time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
