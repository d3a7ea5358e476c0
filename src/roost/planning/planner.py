"""Makes plans: of a job, of a layout on granted accelerators, and of one component."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from roost.config.layout import Layout
from roost.errors import ConfigurationError, PlacementError, shown
from roost.inventory.inventory import Inventory
from roost.inventory.resources import ACCELERATOR, BARE_NODE, Slot
from roost.placement.packed import PackedPlacementStrategy
from roost.placement.placement import Placement, make_placements
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
    if not hasattr(strategy, "get_placement") or isinstance(strategy, type):
        raise ConfigurationError(
            code="RP105",
            what=f"{_seen(strategy)} is not a placement strategy",
            remedy="pass one, such as roost.PackedPlacementStrategy(0, 3), "
            "or launch a plan: cluster.launch(roost.plan(job, cluster), workers)",
        )
    members = strategy.get_placement(inventory, isolate_accelerator)
    grouped = inventory.joined(getattr(strategy, "groups", {}))
    problem = _misplacement(members, grouped)
    if problem:
        what = f"the placements of {_seen(strategy)} cannot be launched"
        raise PlacementError(code="RP105", what=what, why=problem)
    component = ComponentPlan(
        name=name,
        node_groups=tuple(dict.fromkeys(place.node_group_label for place in members)),
        members=tuple(sorted(members, key=lambda place: place.rank)),
    )
    return Plan(inventory=grouped, components={name: component})


def _seen(strategy: Any) -> str:
    plain = isinstance(strategy, (str, int, float))
    return shown(strategy) if plain else f"a value of type {type(strategy).__name__}"


def _misplacement(members: Any, inventory: Inventory) -> str:
    """Why placements cannot be launched; empty if they can. The user may have written the strategy that made them."""
    if not isinstance(members, Sequence) or not all(isinstance(one, Placement) for one in members):
        return "they are not a list of roost.Placement"
    if sorted(one.rank for one in members) != list(range(len(members))) or not members:
        return f"their ranks are not 0 to N-1, each once ({len(members)} of them)"
    for place in members:
        if not 0 <= place.cluster_node_rank < len(inventory.nodes):
            return f"rank {place.rank} is on node {place.cluster_node_rank}, which does not exist"
        count = inventory.nodes[place.cluster_node_rank].accelerators.count
        if place.holds_accelerators and not all(0 <= number < count for number in place.hardware):
            return f"rank {place.rank} holds accelerators that node {place.cluster_node_rank} does not have"
    return ""


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: it would spend most of the time on a million records that form no cycles."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
