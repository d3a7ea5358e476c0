"""The components of a plan, and the accelerators that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roost.config.fields import Count
from roost.inventory.inventory import Inventory
from roost.inventory.resources import BARE_NODE, Resources
from roost.placement.placement import Placement

AcceleratorKey = tuple[int, int]  # the rank of a node, and a number on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """How a component's processes form inference engines: each run of `processes` ranks is one engine."""

    processes: Count = 1
    server: str = "default"
    kind: str = "regular"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentPlan:
    """One component of a plan: its rule, and the placement of each of its processes."""

    name: str
    rule: str = ""  # the placement in canonical spelling; a strategy has none
    node_groups: tuple[str, ...] = ()  # empty: the whole cluster
    members: tuple[Placement, ...]
    engines: Engines | None = None  # None: the processes form no engines

    @property
    def placements(self) -> list[Placement]:
        return list(self.members)

    @property
    def world_size(self) -> int:
        return len(self.members)

    @property
    def nodes(self) -> list[int]:
        """The nodes it uses, by first appearance."""
        return list(dict.fromkeys(place.cluster_node_rank for place in self.members))

    @property
    def runs_nothing(self) -> bool:
        # A placeholder holds accelerators for a program outside the job.
        return self.engines is not None and self.engines.kind == "placeholder"


def resources_of(component: ComponentPlan, inventory: Inventory) -> Resources:
    """The resources that the component's ranks count."""
    bare = component.members[0].kind == BARE_NODE
    count = inventory.nodes_as_resources if bare else inventory.resources
    return count(component.node_groups)


def resource_ranks(component: ComponentPlan, resources: Resources) -> list[Sequence[int]]:
    """The ranks that each of its processes holds."""
    firsts = {(slot.node.rank, slot.group): slot.first for slot in resources.slots}
    ranks: list[Sequence[int]] = []
    for place in component.members:
        first = firsts[place.cluster_node_rank, place.node_group_label]
        local = place.hardware or (0,)  # a bare node
        run = local[-1] - local[0] + 1 == len(local)
        ranks.append(
            range(first + local[0], first + local[-1] + 1) if run else [first + one for one in local]
        )
    return ranks


def accelerators_of(placements: Iterable[Placement]) -> set[AcceleratorKey]:
    """The accelerators that placements hold. Robots and bare nodes are not there to be reserved."""
    return {
        (place.cluster_node_rank, number)
        for place in placements
        if place.holds_accelerators
        for number in place.hardware
    }


def by_node(accelerators: Iterable[AcceleratorKey]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for node, number in accelerators:
        found.setdefault(node, set()).add(number)
    return found


def needs_of(components: Sequence[ComponentPlan]) -> dict[int, set[int]]:
    """The accelerators these components hold, by node. Components may share the same members."""
    shared = {id(part.members): part.members for part in components}
    return by_node(key for members in shared.values() for key in accelerators_of(members))
