"""The components on every device and node of a plan, as bit masks.

Bit i of a mask stands for component i, so that a node of a large plan is a short tuple of numbers, and nodes
that look the same compare equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from roost.inventory.nodes import Node
from roost.placement.placement import Device
from roost.planning.occupancy import Unit, Use, Uses
from roost.planning.plan import Plan
from roost.planning.shares import charge


@dataclass(frozen=True, slots=True)
class NodeMasks:
    node: Node
    accelerators: tuple[int, ...]  # a mask of components for each accelerator
    hardware: tuple[tuple[Unit, int], ...]
    bare: tuple[tuple[int, int], ...]  # component index and how many of its processes, on the node as such


@dataclass(frozen=True)
class OccupancyMasks:
    names: tuple[str, ...]
    nodes: tuple[NodeMasks, ...]
    used: int  # accelerators with a process on them
    shared: int  # accelerators with more than one

    @property
    def total(self) -> int:
        return sum(len(node.accelerators) for node in self.nodes)

    def names_in(self, mask: int) -> list[str]:
        return [name for bit, name in enumerate(self.names) if mask >> bit & 1]

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """For each component, the others it shares a device with."""
        masks = {mask for cells in {node.accelerators for node in self.nodes} for mask in cells}
        masks |= {mask for node in self.nodes for _, mask in node.hardware}
        met = [0] * len(self.names)
        for mask in masks:
            for bit in range(len(self.names)):
                if mask >> bit & 1:
                    met[bit] |= mask & ~(1 << bit)
        return {name: self.names_in(met[bit]) for bit, name in enumerate(self.names)}

    def shares(self, wishes: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        """The least and the most each component is charged on an accelerator, where it holds any."""
        found: dict[str, tuple[float, float]] = {}
        masks = {mask for cells in {node.accelerators for node in self.nodes} for mask in cells}
        for mask in masks:
            for name, share in charge([Use(name, 1) for name in self.names_in(mask)], wishes).items():
                least, most = found.get(name, (share, share))
                found[name] = min(least, share), max(most, share)
        return found


def occupancy_masks(plan: Plan) -> OccupancyMasks:
    """The plan's occupancy with components as bits. Nodes that look the same share one tuple of masks."""
    bits = {name: bit for bit, name in enumerate(plan.components)}
    known: dict[Uses, int] = {}
    rows: dict[int, tuple[int, ...]] = {}  # by the identity of the plan's row, which equal nodes share

    def mask(uses: Uses) -> int:
        if uses not in known:
            known[uses] = sum(1 << bits[use.component] for use in uses)
        return known[uses]

    found, used, shared = [], 0, 0
    for place in plan.nodes:
        row = place.accelerators
        if id(row) not in rows:
            rows[id(row)] = tuple(map(mask, row))
        used += sum(1 for uses in row if uses)
        shared += sum(1 for uses in row if len(uses) > 1 or (uses and uses[0].processes > 1))
        found.append(
            NodeMasks(
                place.node,
                rows[id(row)],
                tuple((unit, mask(uses)) for unit, uses in place.hardware),
                tuple((bits[use.component], use.processes) for use in place.bare),
            )
        )
    return OccupancyMasks(names=tuple(plan.components), nodes=tuple(found), used=used, shared=shared)


def ranks_on_devices(plan: Plan) -> dict[Device, dict[str, list[int]]]:
    """The process ranks on every device. For small plans only: it has an entry for each."""
    found: dict[Device, dict[str, list[int]]] = {}
    for name, component in plan.components.items():
        for place in component.members:
            for device in place.devices:
                found.setdefault(device, {}).setdefault(name, []).append(place.rank)
    return found
