"""The placement of one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from roost.inventory.resources import ACCELERATOR, Slot

# The slot of a process, and the numbers of its resources within the slot.
Assignment = tuple[Slot, tuple[int, ...]]


class Device(NamedTuple):
    """One accelerator, or one unit of a group's hardware."""

    node: int
    kind: str  # ACCELERATOR, or a hardware type
    group: str  # of hardware; accelerators belong to their node and have none
    number: int

    def __str__(self) -> str:
        return f"node {self.node} {self.kind} {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Placement:
    """The node of one process, and the hardware that it holds there."""

    rank: int
    cluster_node_rank: int
    placement_node_rank: int  # index among the nodes this component uses, by first appearance
    local_accelerator_rank: int
    accelerator_type: str
    local_rank: int
    local_world_size: int
    visible: tuple[str, ...]
    isolate_accelerator: bool
    hardware: tuple[int, ...]
    node_group_label: str
    kind: str = ACCELERATOR  # the kind of `hardware`: ACCELERATOR, a hardware type, or BARE_NODE for none

    @property
    def holds_accelerators(self) -> bool:
        return self.kind == ACCELERATOR

    @property
    def devices(self) -> list[Device]:
        """The devices that the process holds."""
        group = "" if self.kind == ACCELERATOR else self.node_group_label
        return [Device(self.cluster_node_rank, self.kind, group, number) for number in self.hardware]

    @property
    def visible_accelerators(self) -> list[str]:
        return list(self.visible)

    @property
    def local_hardware_ranks(self) -> list[int]:
        return list(self.hardware)

    def variables(self, world_size: int) -> dict[str, str]:
        """The environment variables that give a process its ranks within its component."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "NODE_RANK": str(self.placement_node_rank),
            "CLUSTER_NODE_RANK": str(self.cluster_node_rank),
        }

    # The names that older programs use.
    node_id = property(attrgetter("cluster_node_rank"))
    node_rank = property(attrgetter("placement_node_rank"))
    local_gpu_id = property(attrgetter("local_accelerator_rank"))
    cuda_visible_devices = property(attrgetter("visible_accelerators"))
    isolate_gpu = property(attrgetter("isolate_accelerator"))

    def __repr__(self) -> str:  # with the public names
        return f"Placement({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _PUBLIC_NAMES}


# Users see these two as lists.
_LISTS = {"visible": "visible_accelerators", "hardware": "local_hardware_ranks"}
_PUBLIC_NAMES = [_LISTS.get(one.name, one.name) for one in fields(Placement)]


@lru_cache(maxsize=4096)
def _names(ranks: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(map(str, ranks))


def make_placements(assignments: Sequence[Assignment], isolate_accelerator: bool) -> list[Placement]:
    """The placements of one component's processes, in rank order, in one pass."""
    on_node = Counter(slot.node.rank for slot, _ in assignments)
    node_index = {node_rank: index for index, node_rank in enumerate(on_node)}
    seen = dict.fromkeys(on_node, 0)
    placements = []
    for rank, (slot, local) in enumerate(assignments):
        node_rank, accelerators = slot.node.rank, slot.node.accelerators
        assigned = local if slot.kind == ACCELERATOR else ()
        visible = assigned if assigned and isolate_accelerator else tuple(range(accelerators.count))
        first = assigned[0] if assigned else visible[0] if visible else -1
        placements.append(
            Placement(
                rank=rank,
                cluster_node_rank=node_rank,
                placement_node_rank=node_index[node_rank],
                local_accelerator_rank=first,
                accelerator_type=accelerators.type,
                local_rank=seen[node_rank],
                local_world_size=on_node[node_rank],
                visible=_names(visible),
                isolate_accelerator=isolate_accelerator,
                hardware=local,
                node_group_label=slot.group,
                kind=slot.kind,
            )
        )
        seen[node_rank] += 1
    return placements


def without_isolation(placements: Sequence[Placement], accelerators_of: Sequence[int]) -> list[Placement]:
    """The placements, with each process seeing all accelerators of its node, which are counted by node rank."""
    return [
        replace(
            place,
            visible=_names(tuple(range(accelerators_of[place.cluster_node_rank]))),
            isolate_accelerator=False,
        )
        for place in placements
    ]
