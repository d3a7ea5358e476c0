"""Processes side by side on a range of resources, given as ranks, or in the spellings of older programs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from roost.config.ranks import Ranks
from roost.errors import counted
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.placement.placement import Assignment, Placement
from roost.placement.strategies import (
    FlexiblePlacementStrategy,
    PlacementStrategy,
    flag,
    hold,
    placement_error,
    whole,
)

_FROM_MASTER = frozenset(("master_node", "master_gpu", "num_nodes", "num_processes", "num_gpus_per_process"))


class PackedPlacementStrategy(PlacementStrategy):
    """Processes side by side over a range of ranks, interleaved in blocks when `stride` is above 1.

    With the arguments of `from_master`, the constructor makes that strategy.
    """

    def __new__(cls, *ranks: Any, **options: Any) -> PackedPlacementStrategy:
        older = cls is PackedPlacementStrategy and not _FROM_MASTER.isdisjoint(options)
        return super().__new__(FromMaster if older else cls)

    def __init__(
        self,
        start_hardware_rank: int,
        end_hardware_rank: int,
        num_hardware_per_process: int = 1,
        stride: int = 1,
        node_group: Any = None,
    ) -> None:
        self.start = whole("start_hardware_rank", start_hardware_rank, 0)
        self.end = whole("end_hardware_rank", end_hardware_rank, 0)
        self.per_process = whole("num_hardware_per_process", num_hardware_per_process, 1)
        self.stride = whole("stride", stride, 1)
        self.node_group = node_group
        if self.end < self.start:
            what = f"the range {start_hardware_rank}-{end_hardware_rank} runs backwards"
            raise placement_error("RP105", what, remedy=f"write {end_hardware_rank}-{start_hardware_rank}")
        count, block = self.end - self.start + 1, self.stride * self.per_process
        if count % block:
            low, high = count // block * block, (count // block + 1) * block
            ends = [f"{self.start}-{self.start + size - 1}" for size in (low, high) if size]
            raise placement_error(
                "RP103",
                f"{counted(count, 'resource')} ({Ranks(self.start, self.end)}) cannot be cut into blocks of {block}",
                why=f"a block is stride {self.stride} x {self.per_process} per process",
                remedy=f"use {' or '.join(ends)}",
            )

    @classmethod
    def from_master(cls, *start: Any, **options: Any) -> PackedPlacementStrategy:
        """Takes the arguments of `FromMaster`."""
        return FromMaster(*start, **options)

    def assign(self, resources: Resources) -> list[Assignment]:
        if self.end >= resources.total and not resources.bare and resources.total:
            what = f"the range {self.start}-{self.end} goes beyond what exists"
            remedy = f"end at {resources.total - 1} or before"
            raise placement_error("RP101", what, why=f"{resources}", remedy=remedy)
        block, stride, width = self.stride * self.per_process, self.stride, self.per_process
        return hold(
            resources,
            (
                range(base + offset, base + offset + stride * width, stride)[:width]
                for base in range(self.start, self.end + 1, block)
                for offset in range(stride)
            ),
        )

    def nodes_spanned(self, per_node: int) -> int:
        return self.end // per_node + 1


class ClusterWidePacking(PackedPlacementStrategy):
    """A packed strategy whose range depends on the cluster's nodes."""

    needs_isolation = False

    @abstractmethod
    def counted_in(self, inventory: Inventory) -> PlacementStrategy:
        """The same placement, in the ranks of this inventory."""

    def assign(self, resources: Resources) -> list[Assignment]:
        raise NotImplementedError("the range depends on the nodes: use get_placement")

    def placed_on(self, inventory: Inventory, isolate_accelerator: bool) -> list[Placement]:
        if self.needs_isolation and not isolate_accelerator:
            what = f"{type(self).__name__} needs isolate_accelerator=True"
            remedy = "its processes hold several accelerators and must see only those"
            raise placement_error("RP105", what, remedy=remedy)
        return self.counted_in(inventory).placed_on(inventory, isolate_accelerator)

    def nodes_spanned(self, per_node: int) -> int:
        return PlacementStrategy.nodes_spanned(self, per_node)


def first_rank(inventory: Inventory, node: int, gpu: int) -> int:
    """The resource rank of a node's accelerator, which must exist."""
    if not 0 <= node < len(inventory.nodes):
        remedy = f"stay within {Ranks(0, len(inventory.nodes) - 1)}"
        raise placement_error("RP101", f"master_node {node} does not exist", remedy=remedy)
    held = inventory.nodes[node].accelerators.count
    if not held:
        remedy = "choose another master_node"
        raise placement_error("RP101", f"node {node} has no accelerators", remedy=remedy)
    if not 0 <= gpu < held:
        what = f"master_gpu {gpu} does not exist on node {node}"
        raise placement_error("RP101", what, remedy=f"that node has {held}")
    return sum(other.accelerators.count for other in inventory.nodes[:node]) + gpu


def end_of(inventory: Inventory, node: int, num_nodes: int) -> int:
    """One past the last rank of `num_nodes` nodes from `node` on."""
    if node + num_nodes > len(inventory.nodes):
        what = f"there are not {num_nodes} nodes from node {node} on"
        remedy = f"the cluster has {counted(len(inventory.nodes), 'node')}"
        raise placement_error("RP101", what, remedy=remedy)
    return sum(other.accelerators.count for other in inventory.nodes[: node + num_nodes])


class FromMaster(ClusterWidePacking):
    def __init__(
        self,
        master_node: int = 0,
        master_gpu: int = 0,
        num_nodes: int | None = None,
        num_processes: int | None = None,
        num_gpus_per_process: int = 1,
        isolate_gpu: bool = True,
    ) -> None:
        if (num_nodes is None) == (num_processes is None):
            raise placement_error("RP105", "give exactly one of num_nodes and num_processes")
        self.master_node = whole("master_node", master_node, 0)
        self.master_gpu = whole("master_gpu", master_gpu, 0)
        self.num_nodes = None if num_nodes is None else whole("num_nodes", num_nodes, 1)
        self.num_processes = None if num_processes is None else whole("num_processes", num_processes, 1)
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)
        self.isolates = flag("isolate_gpu", isolate_gpu)

    def counted_in(self, inventory: Inventory) -> PlacementStrategy:
        start = first_rank(inventory, self.master_node, self.master_gpu)
        last_node = None
        if self.num_nodes is not None:
            end_of(inventory, self.master_node, self.num_nodes)  # raises unless these nodes exist
            last_node = self.master_node + self.num_nodes
        # Each node takes as many processes as fit. Accelerators left over on a node stay unused.
        processes: list[range] = []
        stop = start - self.master_gpu
        for node in inventory.nodes[self.master_node : last_node]:
            stop += node.accelerators.count
            firsts = range(start, stop - self.width + 1, self.width)
            processes += [range(first, first + self.width) for first in firsts]
            start = stop
            if self.num_processes is not None and len(processes) >= self.num_processes:
                return FlexiblePlacementStrategy(processes[: self.num_processes])
        if self.num_processes is not None:
            many = counted(self.num_processes, "process")
            raise placement_error(
                "RP101",
                f"{many} of {counted(self.width, 'accelerator')} cannot be placed",
                why=f"{len(processes)} fit from accelerator {self.master_gpu} of node {self.master_node} on",
                remedy="use fewer processes, or start further ahead",
            )
        if not processes:
            many = counted(self.width, "accelerator")
            what = f"{many} for each process are more than any of these nodes has"
            raise placement_error("RP104", what, remedy="use fewer per process")
        return FlexiblePlacementStrategy(processes)

    def nodes_spanned(self, per_node: int) -> int:
        if self.num_nodes is not None:
            return self.master_node + self.num_nodes
        each, on_first = per_node // self.width, (per_node - self.master_gpu) // self.width
        others = max(0, (self.num_processes or 0) - on_first)
        return self.master_node + 1 + (-(-others // each) if each else 0)


class FineGrainedPackedPlacementStrategy(FromMaster):
    """`num_gpus` processes of one accelerator each, from a given accelerator on."""

    def __init__(
        self,
        master_node: int = 0,
        master_gpu: int = 0,
        num_gpus: int | None = None,
        isolate_gpu: bool = True,
    ) -> None:
        if num_gpus is None:
            raise placement_error("RP105", "num_gpus is missing")
        count = whole("num_gpus", num_gpus, 1)
        super().__init__(master_node, master_gpu, num_processes=count, isolate_gpu=isolate_gpu)


class ChunkedPlacementStrategy(ClusterWidePacking):
    """The whole cluster in chunks of `num_gpus_per_process`; accelerators left over stay unused."""

    needs_isolation = True

    def __init__(self, num_gpus_per_process: int, isolate_gpu: bool = True) -> None:
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)
        self.isolates = flag("isolate_gpu", isolate_gpu)

    def counted_in(self, inventory: Inventory) -> PlacementStrategy:
        total = inventory.num_accelerators
        used = total - total % self.width
        if not used:
            held = counted(total, "accelerator")
            raise placement_error("RP104", f"a chunk of {self.width} is more than the cluster's {held}")
        return PackedPlacementStrategy(0, used - 1, self.width)


class StridedPlacementStrategy(ClusterWidePacking):
    """Interleaved processes over all accelerators of `num_nodes` nodes."""

    needs_isolation = True

    def __init__(
        self,
        master_node: int = 0,
        num_nodes: int = 1,
        stride: int = 1,
        num_gpus_per_process: int = 1,
        isolate_gpu: bool = True,
    ) -> None:
        self.master_node = whole("master_node", master_node, 0)
        self.num_nodes = whole("num_nodes", num_nodes, 1)
        self.stride = whole("stride", stride, 1)
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)
        self.isolates = flag("isolate_gpu", isolate_gpu)

    def counted_in(self, inventory: Inventory) -> PlacementStrategy:
        start = first_rank(inventory, self.master_node, 0)
        end = end_of(inventory, self.master_node, self.num_nodes)
        return PackedPlacementStrategy(start, end - 1, self.width, self.stride)

    def nodes_spanned(self, per_node: int) -> int:
        return self.master_node + self.num_nodes
