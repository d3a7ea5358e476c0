"""What there is to place on: nodes, their accelerators and hardware, and named groups of nodes."""

from roost.inventory.accelerators import (
    AcceleratorKind,
    AcceleratorType,
    accelerator_kind,
    register_accelerator,
)
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.inventory.hardware import register_hardware
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Accelerators, Node
from roost.inventory.resources import Resources, Slot

__all__ = [
    "AcceleratorKind",
    "AcceleratorType",
    "Accelerators",
    "Inventory",
    "Node",
    "NodeEnvironment",
    "NodeGroup",
    "Resources",
    "Slot",
    "accelerator_kind",
    "register_accelerator",
    "register_hardware",
]
