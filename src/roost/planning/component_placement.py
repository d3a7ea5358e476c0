"""Component placements: they read a plan under the names that older programs use."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar

from roost.errors import Finding
from roost.inventory.inventory import Inventory
from roost.inventory.resources import BARE_NODE
from roost.placement.placement import Placement
from roost.placement.strategies import (
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PlacementStrategy,
    inventory_of,
)
from roost.planning.compiler import JobCompiler
from roost.planning.component_plan import ComponentPlan, resource_ranks, resources_of
from roost.planning.plan import Plan


class PlacementMode(Enum):
    """Whether components share accelerators: all, none, or some."""

    COLLOCATED = "collocated"
    DISAGGREGATED = "disaggregated"
    HYBRID = "hybrid"


class ComponentPlacement:
    """The components of a job by name: their strategies, sizes and ranks, read from its plan.

    Every problem of every component is collected; the constructor raises them together.
    """

    compiler: ClassVar[type[JobCompiler]] = JobCompiler  # compiles the jobs of this class

    def __init__(self, config: Any, cluster: Any, overrides: Sequence[str] = ()) -> None:
        self._compiled = self.compiler(config, inventory_of(cluster), overrides)
        self.plan: Plan = self._compiled.compiled()

    @property
    def findings(self) -> list[Finding]:
        return list(self.plan.findings)

    @property
    def inventory(self) -> Inventory:
        return self.plan.inventory

    @property
    def components(self) -> list[str]:
        return list(self.plan.components)

    @property
    def placement_mode(self) -> PlacementMode:
        """Collocated if all components hold the same resources, disaggregated if none share any, else hybrid."""
        held = [_held(component) for component in self.plan.components.values()]
        if all(one == held[0] for one in held):
            return PlacementMode.COLLOCATED
        disjoint = sum(map(len, held)) == len(set[object]().union(*held))
        return PlacementMode.DISAGGREGATED if disjoint else PlacementMode.HYBRID

    def get_strategy(self, component_name: str) -> PlacementStrategy:
        """A strategy that places the component as the plan does. It carries the node groups that it needs."""
        component = self.plan.component(component_name)
        groups = [self.plan.inventory.groups.get(label, label) for label in component.node_groups] or None
        ranks = self._resource_ranks(component_name)
        if component.members[0].kind == BARE_NODE:
            return NodePlacementStrategy([held[0] for held in ranks], groups)
        return FlexiblePlacementStrategy(ranks, groups)

    def get_world_size(self, component_name: str) -> int:
        return self.plan.component(component_name).world_size

    def get_hardware_ranks(self, component_name: str) -> list[int]:
        ranks = self._resource_ranks(component_name)
        return sorted({rank for held in ranks for rank in held})

    def get_placements(self, component_name: str) -> tuple[Placement, ...]:
        """The placements of the plan, with isolation. A strategy's `get_placement` can leave isolation out."""
        return self.plan.component(component_name).members

    def _resource_ranks(self, component_name: str) -> list[Sequence[int]]:
        component = self.plan.component(component_name)
        return resource_ranks(component, resources_of(component, self.plan.inventory))


def _held(component: ComponentPlan) -> set[object]:
    """The devices of a component, or its nodes if it has no devices."""
    return {held for place in component.members for held in place.devices or (place.cluster_node_rank,)}


class HybridComponentPlacement(ComponentPlacement):
    """Components on any resources, shared or not."""

    @property
    def placement_mode(self) -> PlacementMode:
        return PlacementMode.HYBRID
