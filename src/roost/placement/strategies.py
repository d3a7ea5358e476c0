"""Placement strategies: they give every process of a component its resource ranks on one node."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from roost.config.ranks import Ranks
from roost.errors import ConfigurationError, Finding, PlacementError, counted, shown
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.placement.placement import Assignment, Placement, make_placements

MAX_PROCESSES = 2_000_000
_SHOWN = 3  # examples of one mistake in a message


def inventory_of(cluster: Any) -> Inventory:
    """The inventory of an argument: an inventory, a shape such as `2x8`, or an object with one, as a live cluster."""
    if isinstance(cluster, str):
        return Inventory.parse(cluster)
    inventory = cluster if isinstance(cluster, Inventory) else getattr(cluster, "inventory", None)
    if not isinstance(inventory, Inventory):
        seen = "None" if cluster is None else f"a value of type {type(cluster).__name__}"
        raise ConfigurationError(
            code="RC103",
            what=f"{seen} is neither a cluster nor an inventory",
            remedy='pass a roost.Cluster, a roost.Inventory, or a shape such as "2x8"',
        )
    return inventory


def placement_error(code: str, what: str, why: str = "", remedy: str = "") -> PlacementError:
    return PlacementError(code=code, what=what, why=why, remedy=remedy)


def whole(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)  # numpy's integers too
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        what = f"{name} must be a whole number of at least {least}, not {shown(value)}"
        raise placement_error("RP105", what)
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise placement_error("RP105", f"{name} must be True or False, not {shown(value)}")
    return value


def _listed(name: str, value: Any) -> list[Any]:
    """A list, tuple, array or range as a list; anything else is refused."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise placement_error("RP105", f"{name} must be a list of ranks, not {shown(value)}")
    return list(value)


class PlacementStrategy(ABC):
    """Places every process of one component.

    `node_group` names the node groups whose resources the ranks count. A `NodeGroup` may take the place of a name;
    then the cluster need not know the group.
    """

    node_group: Any = None
    isolates: bool = True  # False hides no accelerator, whatever `get_placement` is asked for

    @property
    def groups(self) -> dict[str, NodeGroup]:
        """The groups in `node_group` that are records, by label."""
        given = self.node_group if isinstance(self.node_group, (list, tuple)) else [self.node_group]
        return {group.label: group for group in given if isinstance(group, NodeGroup)}

    @property
    def labels(self) -> Any:
        if isinstance(self.node_group, (list, tuple)):
            return [one.label if isinstance(one, NodeGroup) else one for one in self.node_group]
        return self.node_group.label if isinstance(self.node_group, NodeGroup) else self.node_group

    @abstractmethod
    def assign(self, resources: Resources) -> list[Assignment]:
        """The slot and local resources of each process, in rank order."""

    def get_placement(
        self,
        cluster: Any = None,
        isolate_accelerator: bool = True,
        *,
        num_gpus_per_node: int | None = None,
        isolate_gpu: bool | None = None,
    ) -> list[Placement]:
        """The placement of each process, in rank order.

        Older programs pass the number of accelerators of each node in place of a cluster; `isolate_gpu` is the older
        name of `isolate_accelerator`.
        """
        per_node = cluster if num_gpus_per_node is None else num_gpus_per_node
        if isinstance(per_node, int):
            count = whole("num_gpus_per_node", per_node, 1)
            cluster = Inventory.uniform(self.nodes_spanned(count), count)
        isolate = isolate_accelerator if isolate_gpu is None else isolate_gpu
        return self.placed_on(inventory_of(cluster), isolate and self.isolates)

    def placed_on(self, inventory: Inventory, isolate_accelerator: bool) -> list[Placement]:
        resources = self.resources(inventory.joined(self.groups))
        return make_placements(self.assign(resources), isolate_accelerator)

    def nodes_spanned(self, per_node: int) -> int:
        """How many nodes of `per_node` accelerators this strategy reaches."""
        what = f"{type(self).__name__} does not say on how many nodes it places"
        raise placement_error("RP105", what, remedy="pass a cluster or an inventory to get_placement")

    def resources(self, inventory: Inventory) -> Resources:
        return inventory.resources(self.labels)


def hold(resources: Resources, processes: Iterable[Sequence[int]]) -> list[Assignment]:
    """Assign each process to its ranks, which must exist and lie on one node. One error lists all that do not."""
    if resources.bare or not resources.total:
        what = f"{resources.place} {resources.has} no hardware to place on"
        if resources.total:
            what = f"the ranks of {resources.place} count nodes, not hardware"
        remedy = "use NodePlacementStrategy for bare nodes, or a group with accelerators"
        raise placement_error("RP104", what, remedy=remedy)
    assignments: list[Assignment] = []
    beyond: list[int] = []
    torn: list[tuple[int, Sequence[int]]] = []
    process = -1
    slot = resources.slots[0]
    first, stop = slot.first, slot.first + slot.count
    for process, ranks in enumerate(processes):
        low, high = ranks[0], ranks[-1]
        if not first <= low < stop:  # mostly the next process is on the same node
            if high >= resources.total:
                beyond.append(process)
                continue
            slot = resources.slot_of(low)
            first, stop = slot.first, slot.first + slot.count
        if high < stop:
            held = (low - first,) if low == high else tuple([rank - first for rank in ranks])
            assignments.append((slot, held))
        elif high >= resources.total:
            beyond.append(process)
        else:
            torn.append((process, ranks))
    findings = []
    if beyond:
        what = f"{_several(beyond)} would hold resources that do not exist"
        remedy = f"stay within {Ranks(0, resources.total - 1)}"
        findings.append(Finding(code="RP101", what=what, why=f"{resources}", remedy=remedy))
    if torn:
        findings.append(_torn(resources, torn, process))
    if findings:
        raise PlacementError(*findings)
    return assignments


def _several(processes: Sequence[int]) -> str:
    shown = ", ".join(map(str, processes[:_SHOWN]))
    more = f" and {len(processes) - _SHOWN} more" if len(processes) > _SHOWN else ""
    return ("process " if len(processes) == 1 else "processes ") + shown + more


def _width_that_fits(resources: Resources, held: Iterable[Sequence[int]]) -> int:
    """The most resources per process with which no process spans nodes; 0 if the ranks are not consecutive."""
    width = 0
    for ranks in held:
        low, high = ranks[0], ranks[-1]
        if high - low + 1 != len(ranks):
            return 0
        ends = resources.firsts[bisect_right(resources.firsts, low) : bisect_right(resources.firsts, high)]
        width = math.gcd(width, len(ranks), *(end - low for end in ends))
        if width == 1:
            break
    return width


def _torn(resources: Resources, torn: Sequence[tuple[int, Sequence[int]]], last_process: int) -> Finding:
    process, ranks = torn[0]
    first, last = resources.slot_of(ranks[0]), resources.slot_of(ranks[-1])
    held = Ranks(ranks[0], ranks[-1])
    if first.node.rank == last.node.rank:
        what = f"both {first.kind} and {last.kind}"
        why = "the resources of a process are all of one hardware type"
        if first.kind == last.kind:
            what = f"{first.kind} of both {first.group} and {last.group}"
            why = "a process is placed through one node group"
        return Finding(
            code="RP109",
            what=f"process {process} would hold {what} ({held})",
            why=why,
            remedy=f"end at {last.first - 1} or start at {last.first}",
        )
    width, joint = len(ranks), "and" if last.node.rank == first.node.rank + 1 else "to"
    nodes = f"nodes {first.node.rank} {joint} {last.node.rank} (resources {held})"
    fits = _width_that_fits(resources, (ranks for _, ranks in torn))
    movable = len(torn) == 1 and process == last_process and width <= last.count  # no process comes after it
    remedies = [f"start it at resource {last.first}"] if movable else []
    remedies += [f"give each process {counted(fits, 'resource')}"] if fits else []
    return Finding(
        code="RP102",
        what=f"process {process} would span {nodes}"
        + (f", and so would {len(torn) - 1:,} more" if len(torn) > 1 else ""),
        why=f"node {first.node.rank} holds {Ranks(first.first, first.first + first.count - 1)}, "
        f"and a process runs on one node",
        remedy=", or ".join(remedies) or "end each process where its node ends",
    )


class FlexiblePlacementStrategy(PlacementStrategy):
    """Explicit ranks for each process; processes may share."""

    def __init__(self, hardware_ranks_list: Sequence[Sequence[int]], node_group_label: Any = None) -> None:
        self.node_group = node_group_label
        lists = _listed("hardware_ranks_list", hardware_ranks_list)
        if not lists:
            remedy = "give one list of ranks for each process"
            raise placement_error("RP105", "hardware_ranks_list is empty", remedy=remedy)
        if len(lists) > MAX_PROCESSES:
            raise placement_error("RP105", f"{len(lists):,} processes", remedy=f"at most {MAX_PROCESSES:,}")
        sorted_lists: list[Sequence[int]] = []
        for process, ranks in enumerate(lists):
            if isinstance(ranks, range) and ranks and ranks.start >= 0 and ranks.step > 0:
                sorted_lists.append(ranks)  # already whole, distinct and ascending
                continue
            name = f"process {process}'s ranks"
            held = [whole(name, rank, 0) for rank in _listed(name, ranks)]
            if not held:
                what = f"process {process} has no ranks"
                raise placement_error("RP105", what, remedy="give it at least one")
            if len(set(held)) < len(held):
                what = f"process {process} holds a rank twice: {held[:20]}"
                raise placement_error("RP105", what, remedy="name each rank once")
            sorted_lists.append(sorted(held))
        self.hardware_ranks_list = sorted(sorted_lists, key=lambda ranks: ranks[0])

    def assign(self, resources: Resources) -> list[Assignment]:
        return hold(resources, self.hardware_ranks_list)

    def nodes_spanned(self, per_node: int) -> int:
        return max(ranks[-1] for ranks in self.hardware_ranks_list) // per_node + 1


class NodePlacementStrategy(PlacementStrategy):
    """One process per entry, on nodes; accelerators are neither assigned nor hidden."""

    def __init__(self, node_ranks: Sequence[int], node_group_label: Any = None) -> None:
        self.node_group = node_group_label
        nodes = _listed("node_ranks", node_ranks)
        if not nodes:
            raise placement_error("RP105", "node_ranks is empty", remedy="name a node for each process")
        self.node_ranks = sorted(whole("node_ranks", rank, 0) for rank in nodes)

    def resources(self, inventory: Inventory) -> Resources:
        return inventory.nodes_as_resources(self.labels)

    def assign(self, resources: Resources) -> list[Assignment]:
        if self.node_ranks[-1] >= resources.total:
            what = f"node {self.node_ranks[-1]} does not exist"
            remedy = f"stay within {Ranks(0, resources.total - 1)}"
            raise placement_error("RP101", what, why=f"{resources}", remedy=remedy)
        return [(resources.slots[rank], ()) for rank in self.node_ranks]

    def nodes_spanned(self, per_node: int) -> int:
        return self.node_ranks[-1] + 1
