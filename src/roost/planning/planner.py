"""Makes plans: of a job, of a pool on the accelerators that were granted to it, and of one component."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from roost.config.layout import Layout
from roost.config.ranks import ranges
from roost.config.supervise import RestartPolicy
from roost.errors import ConfigurationError, Finding, PlacementError, RoostError, shown
from roost.inventory.inventory import Inventory
from roost.inventory.resources import ACCELERATOR, BARE_NODE, Resources, Slot
from roost.placement.packed import PackedPlacementStrategy
from roost.placement.placement import Placement, make_placements
from roost.placement.strategies import NodePlacementStrategy, PlacementStrategy, inventory_of
from roost.planning.checks import check
from roost.planning.compiler import JobCompiler
from roost.planning.component_placement import ComponentPlacement
from roost.planning.component_plan import AcceleratorKey, ComponentPlan
from roost.planning.plan import Plan
from roost.planning.policy_checks import with_pool_policies


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


def _planned(compiler: JobCompiler) -> Plan:
    planned = compiler.compiled()
    layout = compiler.job.layout
    advice = check(planned, layout.components if layout else ())
    return replace(planned, findings=(*planned.findings, *advice))


@dataclass(frozen=True, slots=True)
class PoolPlanner:
    """Finds the accelerators that a layout asks for, and plans it on the granted ones."""

    layout: Layout
    inventory: Inventory
    supervise: Mapping[str, RestartPolicy] = field(default_factory=dict)  # by component

    @property
    def _resources(self) -> Resources:
        return self.inventory.resources(self.layout.node_group)

    @property
    def nodes(self) -> list[int]:
        """The nodes the pool may use, in the order of the pool."""
        return [slot.node.rank for slot in self._resources.slots]

    def asked_for(self) -> list[AcceleratorKey] | None:
        """The accelerators that the layout names; None if it takes any free ones. Raises if the layout cannot fit."""
        layout, there = self.layout, self._resources
        if layout.accelerators is None and 0 < layout.reserved <= there.total and not there.bare:
            return None
        planned = plan(layout, self.inventory)  # raises if something is missing
        return [(device.node, device.number) for device in planned.occupancy]

    def in_order(self, granted: Sequence[AcceleratorKey]) -> list[AcceleratorKey]:
        """The accelerators by node in the order of the pool, then by number."""
        return sorted(granted, key=self._rank_of)

    def plan_on(self, granted: Sequence[AcceleratorKey]) -> Plan:
        """The plan of the layout on exactly these accelerators."""
        ranks = sorted(map(self._rank_of, granted))
        try:
            compiler = JobCompiler(self.layout, self.inventory, granted=ranks)
            return with_pool_policies(_planned(compiler), self.supervise)
        except RoostError as error:
            if ranks == list(range(len(ranks))):
                raise
            raise type(error)(*[_with_ranks(finding, ranks) for finding in error.findings]) from None

    def _rank_of(self, accelerator: AcceleratorKey) -> int:
        firsts = {slot.node.rank: slot.first for slot in self._resources.slots}
        return firsts[accelerator[0]] + accelerator[1]


def _with_ranks(finding: Finding, ranks: Sequence[int]) -> Finding:
    """The finding with the granted accelerators added: the layout may fit the cluster, but not those."""
    free = f"the first that are free are accelerators {ranges(ranks)}"
    return replace(finding, why=f"{finding.why}; {free}" if finding.why else free)


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
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
