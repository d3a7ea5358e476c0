"""Processes side by side on a range of resources, given as ranks or as a first node and accelerator."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from roost.config.ranks import Ranks
from roost.errors import counted
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.placement.placement import Assignment, Placement
from roost.placement.strategies import PlacementStrategy, hold, inventory_of, placement_error, whole


class PackedPlacementStrategy(PlacementStrategy):
    """Processes side by side over a range of ranks, interleaved in blocks when `stride` is above 1."""

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
            raise placement_error(
                "RP105",
                f"the range {start_hardware_rank}-{end_hardware_rank} runs backwards",
                remedy=f"write {end_hardware_rank}-{start_hardware_rank}",
            )
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
    def from_master(
        cls,
        master_node: int = 0,
        master_gpu: int = 0,
        num_nodes: int | None = None,
        num_processes: int | None = None,
        num_gpus_per_process: int = 1,
    ) -> PackedPlacementStrategy:
        return FromMaster(master_node, master_gpu, num_nodes, num_processes, num_gpus_per_process)

    def assign(self, resources: Resources) -> list[Assignment]:
        if self.end >= resources.total and not resources.bare and resources.total:
            raise placement_error(
                "RP101",
                f"the range {self.start}-{self.end} goes beyond what exists",
                why=f"{resources}",
                remedy=f"end at {resources.total - 1} or before",
            )
        block, stride, width = self.stride * self.per_process, self.stride, self.per_process
        return hold(
            resources,
            (
                range(base + offset, base + offset + stride * width, stride)[:width]
                for base in range(self.start, self.end + 1, block)
                for offset in range(stride)
            ),
        )


class ClusterWidePacking(PackedPlacementStrategy):
    """A packed strategy whose range depends on the cluster's nodes."""

    needs_isolation = False

    @abstractmethod
    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        """The same placement as a range of this inventory's ranks."""

    def assign(self, resources: Resources) -> list[Assignment]:
        raise NotImplementedError("the range depends on the nodes: use get_placement")

    def get_placement(self, cluster: Any, isolate_accelerator: bool = True) -> list[Placement]:
        if self.needs_isolation and not isolate_accelerator:
            raise placement_error(
                "RP105",
                f"{type(self).__name__} needs isolate_accelerator=True",
                remedy="its processes hold several accelerators and must see only those",
            )
        inventory = inventory_of(cluster)
        return self.packed(inventory).get_placement(inventory, isolate_accelerator)


def first_rank(inventory: Inventory, node: int, gpu: int) -> int:
    """The resource rank of a node's accelerator, which must exist."""
    if not 0 <= node < len(inventory.nodes):
        raise placement_error(
            "RP101",
            f"master_node {node} does not exist",
            remedy=f"stay within {Ranks(0, len(inventory.nodes) - 1)}",
        )
    held = inventory.nodes[node].accelerators.count
    if not 0 <= gpu < held:
        missing = (
            f"node {node} has no accelerators"
            if not held
            else f"master_gpu {gpu} does not exist on node {node}"
        )
        remedy = f"that node has {held}" if held else "choose another master_node"
        raise placement_error("RP101", missing, remedy=remedy)
    return sum(other.accelerators.count for other in inventory.nodes[:node]) + gpu


def end_of(inventory: Inventory, node: int, num_nodes: int) -> int:
    """One past the last rank of `num_nodes` nodes from `node` on."""
    if node + num_nodes > len(inventory.nodes):
        raise placement_error(
            "RP101",
            f"there are not {num_nodes} nodes from node {node} on",
            remedy=f"the cluster has {counted(len(inventory.nodes), 'node')}",
        )
    return sum(other.accelerators.count for other in inventory.nodes[: node + num_nodes])


class FromMaster(ClusterWidePacking):
    def __init__(
        self,
        master_node: int = 0,
        master_gpu: int = 0,
        num_nodes: int | None = None,
        num_processes: int | None = None,
        num_gpus_per_process: int = 1,
    ) -> None:
        if (num_nodes is None) == (num_processes is None):
            raise placement_error("RP105", "give exactly one of num_nodes and num_processes")
        self.master_node = whole("master_node", master_node, 0)
        self.master_gpu = whole("master_gpu", master_gpu, 0)
        self.num_nodes = None if num_nodes is None else whole("num_nodes", num_nodes, 1)
        self.num_processes = None if num_processes is None else whole("num_processes", num_processes, 1)
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)

    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        start = first_rank(inventory, self.master_node, self.master_gpu)
        if self.num_nodes is not None:
            end = end_of(inventory, self.master_node, self.num_nodes)
        else:
            end = start + (self.num_processes or 0) * self.width
        return PackedPlacementStrategy(start, end - 1, self.width)
