"""The devices of a node. Programs may name a device in several ways; locks know it by one number or name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.engine.locks.lock_table import Device
from roost.engine.workers.worker_context import current_worker
from roost.errors import ClusterError, ConfigurationError, shown
from roost.inventory.groups import NodeGroup
from roost.inventory.nodes import Node

_DIGITS = 9  # no accelerator has a number with more digits


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """The devices of one node. Locks know accelerators by their numbers, other hardware by `label:number`."""

    node: str  # for messages
    accelerators: int
    names: Mapping[str, int]  # the accelerators' names there, with their numbers
    others: tuple[str, ...]

    @classmethod
    def of(
        cls, job: str, node: Node, groups: Mapping[str, NodeGroup], names: Iterable[str] = ()
    ) -> NodeDevices:
        """`names` are the names of the node's accelerators in the order of their numbers, if known."""
        units = {
            label: sum(unit.node_rank == node.rank for unit in group.hardware)
            for label, group in groups.items()
            if group.hardware_type
        }
        return cls(
            node=str(node),
            accelerators=node.accelerators.count,
            names={name: number for number, name in enumerate(names)} | _own_names(job, node.rank),
            others=tuple(f"{label}:{number}" for label, count in units.items() for number in range(count)),
        )

    def identify(self, device: Device) -> Device:
        """The number or name by which locks know the device.

        Names are tried before numbers, because the name of one accelerator may be the number of another.
        """
        if not _is_device(device):
            what = f"a device is an accelerator number or a name, not {shown(device)}"
            raise ConfigurationError(code="RC104", what=what)
        if isinstance(device, str):
            if device in self.names:
                return self.names[device]
            if device in self.others:
                return device
            if not (device.isascii() and device.isdigit() and len(device) <= _DIGITS):
                raise self._unknown(f"device {shown(device)}")
        if not 0 <= int(device) < self.accelerators:
            raise self._unknown(f"accelerator {shown(int(device))}")
        return int(device)

    def identify_all(self, devices: Any) -> list[Device]:
        check_devices(devices)
        return list(dict.fromkeys(map(self.identify, devices)))

    def _unknown(self, what: str) -> ClusterError:
        last = self.accelerators - 1
        has = [f"accelerators 0-{last}" if last else "accelerator 0"] if self.accelerators else []
        called = [name for name, number in self.names.items() if name != str(number)]
        if called:
            has[-1] += f" (called {_listed(list(self.names))})"
        if self.others:
            has.append(_listed(self.others))
        return ClusterError(
            code="RE114",
            what=f"{what} does not exist on {self.node}",
            why=f"it has {' and '.join(has) or 'no devices'}",
        )


def check_devices(devices: Any) -> None:
    fine = isinstance(devices, (list, tuple, range, set, frozenset)) and len(devices) > 0
    if not fine or not all(map(_is_device, devices)):
        raise ConfigurationError(
            code="RC104", what=f"devices are a list of accelerator numbers or names, not {shown(devices)}"
        )


def _is_device(device: Any) -> bool:
    return isinstance(device, (int, str)) and not isinstance(device, bool)


def _own_names(job: str, node_rank: int) -> dict[str, int]:
    """The names of this worker's accelerators, with the planned numbers: Ray may have granted others than planned."""
    context = current_worker()
    if context is None or (context.job, context.placement.cluster_node_rank) != (job, node_rank):
        return {}
    return dict(zip(context.devices, map(int, context.placement.visible), strict=False))


def _listed(names: Sequence[str], limit: int = 16) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
