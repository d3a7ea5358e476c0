"""roost places the parts of a reinforcement-learning job on a cluster and runs them exactly there.

Names are imported on first use: `import roost` loads neither Ray nor torch nor Hydra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "roost.engine.cluster": ("Cluster",),
    "roost.engine.here": ("check_fence", "device_lock", "lease_ports"),
    "roost.engine.locks.device_lock": ("DeviceLock",),
    "roost.engine.connection.embedded": ("embedded",),
    "roost.engine.group": ("WorkerGroup",),
    "roost.engine.ports.port_lease": ("PortLease",),
    "roost.engine.placement_groups": ("create_placement_groups",),
    "roost.engine.pool": ("Pool",),
    "roost.engine.job.managers": ("CollectiveManager", "NodeManager", "WorkerManager", "running_jobs"),
    "roost.engine.workers.result": ("GroupResult",),
    "roost.engine.workers.scatter": ("scatter",),
    "roost.engine.workers.worker": ("Worker",),
    "roost.engine.workers.worker_context": ("current_worker",),
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

if TYPE_CHECKING:  # `as` says to type checkers that a name is meant for others
    from roost.engine.cluster import Cluster as Cluster
    from roost.engine.connection.embedded import embedded as embedded
    from roost.engine.group import WorkerGroup as WorkerGroup
    from roost.engine.here import check_fence as check_fence
    from roost.engine.here import device_lock as device_lock
    from roost.engine.here import lease_ports as lease_ports
    from roost.engine.job.managers import CollectiveManager as CollectiveManager
    from roost.engine.job.managers import NodeManager as NodeManager
    from roost.engine.job.managers import WorkerManager as WorkerManager
    from roost.engine.job.managers import running_jobs as running_jobs
    from roost.engine.locks.device_lock import DeviceLock as DeviceLock
    from roost.engine.placement_groups import create_placement_groups as create_placement_groups
    from roost.engine.pool import Pool as Pool
    from roost.engine.ports.port_lease import PortLease as PortLease
    from roost.engine.workers.result import GroupResult as GroupResult
    from roost.engine.workers.scatter import scatter as scatter
    from roost.engine.workers.worker import Worker as Worker
    from roost.engine.workers.worker_context import current_worker as current_worker
    from roost.errors import CallTimeout as CallTimeout
    from roost.errors import ClusterError as ClusterError
    from roost.errors import ConfigurationError as ConfigurationError
    from roost.errors import Finding as Finding
    from roost.errors import LaunchError as LaunchError
    from roost.errors import PlacementError as PlacementError
    from roost.errors import ReservationError as ReservationError
    from roost.errors import RoostError as RoostError
    from roost.errors import WorkerDied as WorkerDied
    from roost.errors import WorkerError as WorkerError
    from roost.errors import WorkerRaised as WorkerRaised
    from roost.inventory.accelerators import AcceleratorType as AcceleratorType
    from roost.inventory.accelerators import register_accelerator as register_accelerator
    from roost.inventory.groups import NodeGroup as NodeGroup
    from roost.inventory.hardware import register_hardware as register_hardware
    from roost.inventory.inventory import Inventory as Inventory
    from roost.inventory.nodes import Node as Node
    from roost.inventory.ordering import NodeInfo as NodeInfo
    from roost.placement.component import ComponentPlacement as ComponentPlacement
    from roost.placement.component import HybridComponentPlacement as HybridComponentPlacement
    from roost.placement.component import PlacementMode as PlacementMode
    from roost.placement.layouts import EngineGroup as EngineGroup
    from roost.placement.layouts import Layout as Layout
    from roost.placement.layouts import LayoutMode as LayoutMode
    from roost.placement.layouts import Server as Server
    from roost.placement.model_parallel import (
        ModelParallelComponentPlacement as ModelParallelComponentPlacement,
    )
    from roost.placement.older import ChunkedPlacementStrategy as ChunkedPlacementStrategy
    from roost.placement.older import FineGrainedPackedPlacementStrategy as FineGrainedPackedPlacementStrategy
    from roost.placement.older import StridedPlacementStrategy as StridedPlacementStrategy
    from roost.placement.placement import Placement as Placement
    from roost.placement.strategies import FlexiblePlacementStrategy as FlexiblePlacementStrategy
    from roost.placement.strategies import NodePlacementStrategy as NodePlacementStrategy
    from roost.placement.strategies import PackedPlacementStrategy as PackedPlacementStrategy
    from roost.placement.strategies import PlacementStrategy as PlacementStrategy
    from roost.planning.plan import Plan as Plan
    from roost.planning.planner import plan as plan
    from roost.planning.saved import load_plan as load_plan
    from roost.planning.saved import save_plan as save_plan
    from roost.rl.command import CommandLine as CommandLine
    from roost.rl.engine import Engine as Engine
    from roost.rl.engine import EngineContext as EngineContext
    from roost.rl.engine_group import Endpoint as Endpoint
    from roost.rl.rollout import RolloutManager as RolloutManager
    from roost.rl.train_group import TrainGroup as TrainGroup


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'roost' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
