"""The processes on every device and node of a plan, computed once.

Accelerators with the same processes share one tuple of uses, and nodes that look the same share one row, so that
large plans stay small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.inventory.resources import ACCELERATOR, BARE_NODE
from roost.placement.placement import Device, Placement


class Use(NamedTuple):
    """The number of processes that a component has on a device."""

    component: str
    processes: int


Uses = tuple[Use, ...]  # of one device, in the order of the plan's components


def is_shared(uses: Uses) -> bool:
    """Whether a device has more than one process."""
    return len(uses) > 1 or (len(uses) == 1 and uses[0].processes > 1)


@dataclass(frozen=True, slots=True)
class NodeOccupancy:
    node: Node
    accelerators: tuple[Uses, ...]
    hardware: tuple[tuple[Device, Uses], ...]  # robots, and other declared hardware
    bare: Uses  # processes that hold nothing but the node

    def devices(self) -> Iterator[tuple[Device, Uses]]:
        """Every device of the node, used or not."""
        for number, uses in enumerate(self.accelerators):
            yield Device(self.node.rank, ACCELERATOR, "", number), uses
        yield from self.hardware


class _Cells:
    """Numbers the distinct sets of uses; 0 is the set of an empty device."""

    def __init__(self, order: Mapping[str, int]) -> None:
        self.uses: list[Uses] = [()]
        self._order = order
        self._numbers: dict[Uses, int] = {(): 0}

    def with_one_more(self, names: tuple[str, ...], cell: int) -> int:
        """The set with one more process of each of these components."""
        counts = dict(self.uses[cell])
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        uses = tuple(Use(name, counts[name]) for name in sorted(counts, key=self._order.__getitem__))
        if uses not in self._numbers:
            self._numbers[uses] = len(self.uses)
            self.uses.append(uses)
        return self._numbers[uses]


def occupancy_of(
    inventory: Inventory, members: Mapping[str, tuple[Placement, ...]]
) -> tuple[NodeOccupancy, ...]:
    """The occupancy of each node, in one pass over the processes. Components that share placements share the pass."""
    cells = _Cells({name: index for index, name in enumerate(members)})
    rows = [[0] * node.accelerators.count for node in inventory.nodes]
    bare = [0] * len(inventory.nodes)
    hardware = _units(inventory)
    sharing: dict[int, tuple[str, ...]] = {}  # the components with the same placements
    for name, places in members.items():
        sharing[id(places)] = (*sharing.get(id(places), ()), name)
    for names in sharing.values():
        following = cache(partial(cells.with_one_more, names))
        for place in members[names[0]]:
            node = place.cluster_node_rank
            if place.kind == ACCELERATOR:
                row = rows[node]
                for number in place.hardware:
                    row[number] = following(row[number])
            elif place.kind == BARE_NODE:
                bare[node] = following(bare[node])
            else:
                for device in place.devices:
                    hardware[node][device] = following(hardware[node].get(device, 0))
    drawn: dict[tuple[int, ...], tuple[Uses, ...]] = {}
    found = []
    for index, there in enumerate(inventory.nodes):
        numbers = tuple(rows[index])
        if numbers not in drawn:
            drawn[numbers] = tuple([cells.uses[number] for number in numbers])
        units = tuple([(device, cells.uses[cell]) for device, cell in hardware[index].items()])
        found.append(NodeOccupancy(there, drawn[numbers], units, cells.uses[bare[index]]))
    return tuple(found)


def _units(inventory: Inventory) -> list[dict[Device, int]]:
    """All declared hardware of each node, without processes."""
    units: list[dict[Device, int]] = [{} for _ in inventory.nodes]
    for label, group in inventory.groups.items():
        if group.hardware_type:
            on_node: Counter[int] = Counter()
            for unit in group.hardware:
                node = unit.node_rank
                units[node][Device(node, group.hardware_type, label, on_node[node])] = 0
                on_node[node] += 1
    return units
