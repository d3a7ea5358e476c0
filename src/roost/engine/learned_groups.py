"""The node groups that a cluster was not started with: the plans of its launches brought them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping

from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory


class LearnedGroups:
    """Counts the launches that use each of them."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()

    def learn(self, inventory: Inventory, groups: Mapping[str, NodeGroup]) -> tuple[Inventory, list[str]]:
        """The inventory with the node groups of a launch, and the labels that the launch has to `forget`."""
        with self._lock:
            new = {label: group for label, group in groups.items() if label not in inventory.groups}
            joined = inventory.joined(new)
            used = [label for label in groups if label in new or label in self._uses]
            self._uses.update(used)
        return joined, used

    def forget(self, inventory: Inventory, labels: Collection[str]) -> tuple[Inventory, list[str]]:
        """The inventory after a launch has ended, and the labels that no other launch uses."""
        with self._lock:
            self._uses.subtract(labels)
            unused = [label for label in labels if self._uses[label] <= 0]
            for label in unused:
                del self._uses[label]
        return inventory.without(unused), unused
