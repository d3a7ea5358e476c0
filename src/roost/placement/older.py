"""Spellings of older programs, over the same code."""

from __future__ import annotations

from typing import Any

from roost.config.ranks import Ranks
from roost.errors import Finding, PlacementError, counted
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.placement.placement import Assignment, Placement
from roost.placement.strategies import PackedPlacementStrategy, inventory_of, whole


def _refuse(code: str, what: str, remedy: str = "") -> PlacementError:
    return PlacementError(Finding(code=code, what=what, remedy=remedy))


class _Older(PackedPlacementStrategy):
    """Knows its packed range only once it sees the cluster."""

    needs_isolation = False

    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        raise NotImplementedError

    def assign(self, resources: Resources) -> list[Assignment]:
        raise NotImplementedError("the range depends on the nodes: use get_placement")

    def get_placement(self, cluster: Any, isolate_accelerator: bool = True) -> list[Placement]:
        if self.needs_isolation and not isolate_accelerator:
            raise _refuse(
                "RP105",
                f"{type(self).__name__} needs isolate_accelerator=True",
                "its processes hold several accelerators and must see only those",
            )
        inventory = inventory_of(cluster)
        return self.packed(inventory).get_placement(inventory, isolate_accelerator)


def _first_rank(inventory: Inventory, node: int, gpu: int) -> int:
    """The resource rank of a node's accelerator, which must exist."""
    if not 0 <= node < len(inventory.nodes):
        raise _refuse(
            "RP101", f"master_node {node} does not exist", f"stay within {Ranks(0, len(inventory.nodes) - 1)}"
        )
    held = inventory.nodes[node].accelerators.count
    if not 0 <= gpu < held:
        missing = (
            f"node {node} has no accelerators"
            if not held
            else f"master_gpu {gpu} does not exist on node {node}"
        )
        raise _refuse("RP101", missing, f"that node has {held}" if held else "choose another master_node")
    return sum(other.accelerators.count for other in inventory.nodes[:node]) + gpu


def _end_of(inventory: Inventory, node: int, num_nodes: int) -> int:
    """One past the last rank of `num_nodes` nodes from `node` on."""
    if node + num_nodes > len(inventory.nodes):
        raise _refuse(
            "RP101",
            f"there are not {num_nodes} nodes from node {node} on",
            f"the cluster has {counted(len(inventory.nodes), 'node')}",
        )
    return sum(other.accelerators.count for other in inventory.nodes[: node + num_nodes])


class FromMaster(_Older):
    def __init__(
        self,
        master_node: int = 0,
        master_gpu: int = 0,
        num_nodes: int | None = None,
        num_processes: int | None = None,
        num_gpus_per_process: int = 1,
    ) -> None:
        if (num_nodes is None) == (num_processes is None):
            raise _refuse("RP105", "give exactly one of num_nodes and num_processes")
        self.master_node = whole("master_node", master_node, 0)
        self.master_gpu = whole("master_gpu", master_gpu, 0)
        self.num_nodes = None if num_nodes is None else whole("num_nodes", num_nodes, 1)
        self.num_processes = None if num_processes is None else whole("num_processes", num_processes, 1)
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)

    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        start = _first_rank(inventory, self.master_node, self.master_gpu)
        if self.num_nodes is not None:
            end = _end_of(inventory, self.master_node, self.num_nodes)
        else:
            end = start + (self.num_processes or 0) * self.width
        return PackedPlacementStrategy(start, end - 1, self.width)


class FineGrainedPackedPlacementStrategy(FromMaster):
    """`num_gpus` processes of one accelerator each, from a given accelerator on."""

    def __init__(self, master_node: int = 0, master_gpu: int = 0, num_gpus: int | None = None) -> None:
        if num_gpus is None:
            raise _refuse("RP105", "num_gpus is missing")
        super().__init__(master_node, master_gpu, num_processes=whole("num_gpus", num_gpus, 1))


class ChunkedPlacementStrategy(_Older):
    """The whole cluster in chunks of `num_gpus_per_process`; accelerators left over stay unused."""

    needs_isolation = True

    def __init__(self, num_gpus_per_process: int) -> None:
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)

    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        total = inventory.num_accelerators
        used = total - total % self.width
        if not used:
            raise _refuse(
                "RP104",
                f"a chunk of {self.width} is more than the cluster's {counted(total, 'accelerator')}",
            )
        return PackedPlacementStrategy(0, used - 1, self.width)


class StridedPlacementStrategy(_Older):
    """Interleaved processes over all accelerators of `num_nodes` nodes."""

    needs_isolation = True

    def __init__(
        self, master_node: int = 0, num_nodes: int = 1, stride: int = 1, num_gpus_per_process: int = 1
    ) -> None:
        self.master_node = whole("master_node", master_node, 0)
        self.num_nodes = whole("num_nodes", num_nodes, 1)
        self.stride = whole("stride", stride, 1)
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)

    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        start = _first_rank(inventory, self.master_node, 0)
        end = _end_of(inventory, self.master_node, self.num_nodes)
        return PackedPlacementStrategy(start, end - 1, self.width, self.stride)
