"""roost places the parts of a reinforcement-learning job on a cluster and runs them exactly there.

Names are imported on first use: `import roost` loads neither Ray nor torch nor Hydra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "roost.engine.cluster": ("Cluster",),
    "roost.engine.device_lock": ("DeviceLock", "check_fence", "device_lock"),
    "roost.engine.embedded": ("embedded",),
    "roost.engine.group": ("WorkerGroup",),
    "roost.engine.leases": ("PortLease", "lease_ports"),
    "roost.engine.placement_groups": ("create_placement_groups",),
    "roost.engine.pool": ("Pool",),
    "roost.engine.managers": ("CollectiveManager", "NodeManager", "WorkerManager", "running_jobs"),
    "roost.engine.result": ("GroupResult",),
    "roost.engine.scatter": ("scatter",),
    "roost.engine.worker": ("Worker",),
    "roost.errors": (
        "CallTimeout",
        "ClusterError",
        "ConfigurationError",
        "Finding",
        "LaunchError",
        "PlacementError",
        "ReservationError",
        "RoostError",
        "WorkerDied",
        "WorkerError",
        "WorkerRaised",
    ),
    "roost.inventory.accelerators": ("AcceleratorType", "register_accelerator"),
    "roost.inventory.groups": ("NodeGroup",),
    "roost.inventory.hardware": ("register_hardware",),
    "roost.inventory.inventory": ("Inventory",),
    "roost.inventory.nodes": ("Node",),
    "roost.inventory.ordering": ("NodeInfo",),
    "roost.placement.component": ("ComponentPlacement", "HybridComponentPlacement", "PlacementMode"),
    "roost.placement.layouts": ("EngineGroup", "Layout", "LayoutMode", "Server"),
    "roost.placement.model_parallel": ("ModelParallelComponentPlacement",),
    "roost.placement.older": (
        "ChunkedPlacementStrategy",
        "FineGrainedPackedPlacementStrategy",
        "StridedPlacementStrategy",
    ),
    "roost.placement.placement": ("Placement",),
    "roost.placement.strategies": (
        "FlexiblePlacementStrategy",
        "NodePlacementStrategy",
        "PackedPlacementStrategy",
        "PlacementStrategy",
    ),
    "roost.planning.plan": ("Plan",),
    "roost.planning.planner": ("plan",),
    "roost.planning.saved": ("load_plan", "save_plan"),
    "roost.rl.command": ("CommandLine",),
    "roost.rl.engine": ("Engine", "EngineContext"),
    "roost.rl.engine_group": ("Endpoint",),
    "roost.rl.rollout": ("RolloutManager",),
    "roost.rl.train_group": ("TrainGroup",),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from roost.engine.cluster import Cluster
    from roost.engine.device_lock import DeviceLock, check_fence, device_lock
    from roost.engine.embedded import embedded
    from roost.engine.group import WorkerGroup
    from roost.engine.leases import PortLease, lease_ports
    from roost.engine.managers import CollectiveManager, NodeManager, WorkerManager, running_jobs
    from roost.engine.placement_groups import create_placement_groups
    from roost.engine.pool import Pool
    from roost.engine.result import GroupResult
    from roost.engine.scatter import scatter
    from roost.engine.worker import Worker
    from roost.errors import (
        CallTimeout,
        ClusterError,
        ConfigurationError,
        Finding,
        LaunchError,
        PlacementError,
        ReservationError,
        RoostError,
        WorkerDied,
        WorkerError,
        WorkerRaised,
    )
    from roost.inventory.accelerators import AcceleratorType, register_accelerator
    from roost.inventory.groups import NodeGroup
    from roost.inventory.hardware import register_hardware
    from roost.inventory.inventory import Inventory
    from roost.inventory.nodes import Node
    from roost.inventory.ordering import NodeInfo
    from roost.placement.component import ComponentPlacement, HybridComponentPlacement, PlacementMode
    from roost.placement.layouts import EngineGroup, Layout, LayoutMode, Server
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
    from roost.planning.plan import Plan
    from roost.planning.planner import plan
    from roost.planning.saved import load_plan, save_plan
    from roost.rl.command import CommandLine
    from roost.rl.engine import Engine, EngineContext
    from roost.rl.engine_group import Endpoint
    from roost.rl.rollout import RolloutManager
    from roost.rl.train_group import TrainGroup


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'roost' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
