"""Which accelerators placements hold. Robots and bare nodes are not there to be reserved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roost.placement.placement import Placement
from roost.planning.component_plan import ComponentPlan

AcceleratorKey = tuple[int, int]  # the rank of a node, and a number on it


def accelerators_of(placements: Iterable[Placement]) -> set[AcceleratorKey]:
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
