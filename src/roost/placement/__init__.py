"""Who goes where: placements, the strategies that make them, and the placements of a job's components."""

from roost.placement.component import ComponentPlacement, HybridComponentPlacement, PlacementMode
from roost.placement.model_parallel import ModelParallelComponentPlacement
from roost.placement.older import (
    ChunkedPlacementStrategy,
    FineGrainedPackedPlacementStrategy,
    StridedPlacementStrategy,
)
from roost.placement.placement import Placement
from roost.placement.strategies import (
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementStrategy,
)

__all__ = [
    "ChunkedPlacementStrategy",
    "ComponentPlacement",
    "FineGrainedPackedPlacementStrategy",
    "FlexiblePlacementStrategy",
    "HybridComponentPlacement",
    "ModelParallelComponentPlacement",
    "NodePlacementStrategy",
    "PackedPlacementStrategy",
    "Placement",
    "PlacementMode",
    "PlacementStrategy",
    "StridedPlacementStrategy",
]
