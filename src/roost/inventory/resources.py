"""Resource ranks: the numbers of the accelerators, nodes or other hardware that components are placed on.

A lookup of a rank bisects the first ranks of the slots.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from roost.errors import counted
from roost.inventory.nodes import Node

BARE_NODE = "node"
ACCELERATOR = "accelerator"


@dataclass(frozen=True, slots=True)
class Slot:
    """The resources of one node that one group counts."""

    node: Node
    group: str
    kind: str  # ACCELERATOR, BARE_NODE, or a hardware type
    first: int  # resource rank of its first resource
    count: int


@dataclass(frozen=True, slots=True)
class Resources:
    """All resources of the chosen groups, in rank order."""

    labels: tuple[str, ...]
    slots: tuple[Slot, ...]
    firsts: tuple[int, ...]
    total: int
    bare: bool  # ranks count nodes

    @classmethod
    def of(cls, labels: tuple[str, ...], parts: list[tuple[Node, str, str, int]], bare: bool) -> Resources:
        slots, first = [], 0
        for node, group, kind, count in parts:
            if count:
                slots.append(Slot(node, group, kind, first, count))
                first += count
        return cls(labels, tuple(slots), tuple(slot.first for slot in slots), first, bare)

    def slot_of(self, rank: int) -> Slot:
        """The slot that holds a rank in 0..total-1."""
        return self.slots[bisect_right(self.firsts, rank) - 1]

    @property
    def noun(self) -> str:
        kinds = {slot.kind for slot in self.slots}
        if self.bare:
            return "node"
        return kinds.pop() if len(kinds) == 1 else "resource"

    @property
    def place(self) -> str:
        if self.labels in ((), ("cluster",)):
            return "the cluster"
        if len(self.labels) == 1:
            return f"group {self.labels[0]}"
        return f"groups {', '.join(self.labels[:-1])} and {self.labels[-1]}"

    def __str__(self) -> str:
        place = "the cluster" if self.labels == ("node",) else self.place
        ranks = f"0-{self.total - 1}" if self.total > 1 else "0"
        return f"{place} {self.has} {counted(self.total, self.noun)} ({ranks})"

    @property
    def has(self) -> str:
        return "has" if len(self.labels) < 2 else "together have"
