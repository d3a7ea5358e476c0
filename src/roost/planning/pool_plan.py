"""Planning a layout on the accelerators that were granted to its pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from roost.config.layout import Layout
from roost.config.ranks import ranges
from roost.config.supervise import RestartPolicy
from roost.errors import Finding, RoostError
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.planning.plan import Plan
from roost.planning.planner import plan, plan_granted
from roost.planning.policy_checks import with_pool_policies

Accelerator = tuple[int, int]  # a node, and a number on it


@dataclass(frozen=True, slots=True)
class PoolPlanner:
    """Finds the accelerators that a layout asks for, and plans it on the granted ones."""

    layout: Layout
    inventory: Inventory
    supervise: Mapping[str, RestartPolicy] = field(default_factory=dict)  # by component

    @property
    def _resources(self) -> Resources:
        return self.inventory.resources(self.layout.node_group or None)

    @property
    def nodes(self) -> list[int]:
        """The nodes the pool may use, in the order of the pool."""
        return [slot.node.rank for slot in self._resources.slots]

    def asked_for(self) -> list[Accelerator] | None:
        """The accelerators that the layout names; None if it takes any free ones. Raises if the layout cannot fit."""
        layout, there = self.layout, self._resources
        if layout.accelerators is None and 0 < layout.reserved <= there.total and not there.bare:
            return None
        planned = plan(layout, self.inventory)  # raises if something is missing
        return [(device.node, device.number) for device in planned.occupancy]

    def in_order(self, granted: Sequence[Accelerator]) -> list[Accelerator]:
        """The accelerators by node in the order of the pool, then by number."""
        return sorted(granted, key=self._rank_of)

    def plan_on(self, granted: Sequence[Accelerator]) -> Plan:
        """The plan of the layout on exactly these accelerators."""
        ranks = [self._rank_of(one) for one in self.in_order(granted)]
        try:
            return with_pool_policies(plan_granted(self.layout, self.inventory, ranks), self.supervise)
        except RoostError as error:
            if ranks == list(range(len(ranks))):
                raise
            raise type(error)(*[_with_ranks(finding, ranks) for finding in error.findings]) from None

    def _rank_of(self, accelerator: Accelerator) -> int:
        firsts = {slot.node.rank: slot.first for slot in self._resources.slots}
        return firsts[accelerator[0]] + accelerator[1]


def _with_ranks(finding: Finding, ranks: Sequence[int]) -> Finding:
    """The finding with the granted accelerators added: the layout may fit the cluster, but not those."""
    free = f"the first that are free are accelerators {ranges(ranks)}"
    return replace(finding, why=f"{finding.why}; {free}" if finding.why else free)
