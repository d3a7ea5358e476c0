"""The components of a plan, and the accelerators that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roost.config.fields import Count
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
