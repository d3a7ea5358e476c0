"""Who sits where, node by node, in a form small enough to draw.

Components are bits of a mask, so that a node of a large plan is a short tuple of numbers and equal nodes
compare equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from roost.inventory.nodes import Node
from roost.placement.placement import Placement
from roost.planning.plan import Device, Plan, Use
from roost.planning.shares import charge


class Unit(NamedTuple):
    """One robot, or other declared hardware, of a node."""

    type: str
    group: str
    number: int


@dataclass(frozen=True, slots=True)
class NodeSeats:
    node: Node
    accelerators: tuple[int, ...]  # a mask of components for each accelerator
    hardware: tuple[tuple[Unit, int], ...]
    bare: tuple[tuple[int, int], ...]  # component index and how many of its processes, on the node as such


@dataclass(frozen=True)
class Seats:
    names: tuple[str, ...]  # bit i of a mask stands for component i
    nodes: tuple[NodeSeats, ...]
    used: int  # accelerators with a process on them
    shared: int  # accelerators with more than one

    @property
    def total(self) -> int:
        return sum(len(node.accelerators) for node in self.nodes)

    @property
    def in_short(self) -> str:
        """`4 nodes, 32 accelerators: 28 used, 4 idle, 8 shared`."""
        nodes = f"{len(self.nodes):,} node{'s' * (len(self.nodes) != 1)}"
        if not self.total:
            return f"{nodes}, no accelerators"
        idle = self.total - self.used
        return (
            f"{nodes}, {self.total:,} accelerators: {self.used:,} used, {idle:,} idle, {self.shared:,} shared"
        )

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


def seats(plan: Plan) -> Seats:
    """One pass over the processes; components that share all their placements are passed over together."""
    nodes, groups = plan.inventory.nodes, plan.inventory.groups
    kinds = {label: group.hardware_type for label, group in groups.items() if group.hardware_type}
    masks = [[0] * node.accelerators.count for node in nodes]
    counts = [[0] * node.accelerators.count for node in nodes]
    hardware: list[dict[Unit, int]] = [{} for _ in nodes]
    for label, kind in kinds.items():
        on_node: Counter[int] = Counter()
        for unit in groups[label].hardware:
            hardware[unit.node_rank][Unit(kind, label, on_node[unit.node_rank])] = 0
            on_node[unit.node_rank] += 1
    bare: list[dict[int, int]] = [{} for _ in nodes]
    for members, bits in _distinct(plan):
        mask = sum(1 << bit for bit in bits)
        for place in members:
            node = place.cluster_node_rank
            label = place.node_group_label
            if not place.hardware:
                for bit in bits:
                    bare[node][bit] = bare[node].get(bit, 0) + 1
            elif label in kinds:
                for number in place.hardware:
                    unit_key = Unit(kinds[label], label, number)
                    hardware[node][unit_key] = hardware[node].get(unit_key, 0) | mask
            else:
                row, tally = masks[node], counts[node]
                for number in place.hardware:
                    row[number] |= mask
                    tally[number] += len(bits)
    return Seats(
        names=tuple(plan.components),
        nodes=tuple(
            NodeSeats(node, tuple(masks[i]), tuple(hardware[i].items()), tuple(sorted(bare[i].items())))
            for i, node in enumerate(nodes)
        ),
        used=sum(1 for tally in counts for number in tally if number),
        shared=sum(1 for tally in counts for number in tally if number > 1),
    )


def _distinct(plan: Plan) -> Iterator[tuple[tuple[Placement, ...], list[int]]]:
    found: dict[int, tuple[tuple[Placement, ...], list[int]]] = {}
    for bit, component in enumerate(plan.components.values()):
        found.setdefault(id(component.members), (component.members, []))[1].append(bit)
    return iter(found.values())


def ranks_on_devices(plan: Plan) -> dict[Device, dict[str, list[int]]]:
    """The process ranks on every device. For small plans: it holds an entry for each."""
    found: dict[Device, dict[str, list[int]]] = {}
    for name, component in plan.components.items():
        for place in component.members:
            for device in plan.devices_of(place):
                found.setdefault(device, {}).setdefault(name, []).append(place.rank)
    return found
