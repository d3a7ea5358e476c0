"""Packed strategies with the names and arguments that older programs use."""

from __future__ import annotations

from roost.errors import counted
from roost.inventory.inventory import Inventory
from roost.placement.packed import (
    ClusterWidePacking,
    FromMaster,
    PackedPlacementStrategy,
    end_of,
    first_rank,
)
from roost.placement.strategies import placement_error, whole


class FineGrainedPackedPlacementStrategy(FromMaster):
    """`num_gpus` processes of one accelerator each, from a given accelerator on."""

    def __init__(self, master_node: int = 0, master_gpu: int = 0, num_gpus: int | None = None) -> None:
        if num_gpus is None:
            raise placement_error("RP105", "num_gpus is missing")
        super().__init__(master_node, master_gpu, num_processes=whole("num_gpus", num_gpus, 1))


class ChunkedPlacementStrategy(ClusterWidePacking):
    """The whole cluster in chunks of `num_gpus_per_process`; accelerators left over stay unused."""

    needs_isolation = True

    def __init__(self, num_gpus_per_process: int) -> None:
        self.width = whole("num_gpus_per_process", num_gpus_per_process, 1)

    def packed(self, inventory: Inventory) -> PackedPlacementStrategy:
        total = inventory.num_accelerators
        used = total - total % self.width
        if not used:
            raise placement_error(
                "RP104",
                f"a chunk of {self.width} is more than the cluster's {counted(total, 'accelerator')}",
            )
        return PackedPlacementStrategy(0, used - 1, self.width)


class StridedPlacementStrategy(ClusterWidePacking):
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
        start = first_rank(inventory, self.master_node, 0)
        end = end_of(inventory, self.master_node, self.num_nodes)
        return PackedPlacementStrategy(start, end - 1, self.width, self.stride)
