"""The plan as a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from roost.errors import Finding, PlacementError, nearest
from roost.inventory.inventory import Inventory
from roost.inventory.resources import ACCELERATOR
from roost.placement.placement import Placement
from roost.planning.shares import WHOLE, charge, ticks_of

FORMAT_VERSION = 1


class Device(NamedTuple):
    """One accelerator, or one unit of a group's hardware."""

    node: int
    kind: str  # ACCELERATOR, or a hardware type
    group: str  # of hardware; accelerators belong to their node and have none
    number: int

    def __str__(self) -> str:
        return f"node {self.node} {self.kind} {self.number}"


class Use(NamedTuple):
    """How many processes of a component sit on a device."""

    component: str
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentPlan:
    name: str
    rule: str  # the placement in canonical spelling
    node_groups: tuple[str, ...]
    members: tuple[Placement, ...]

    @property
    def placements(self) -> list[Placement]:
        return list(self.members)

    @property
    def world_size(self) -> int:
        return len(self.members)

    @property
    def nodes(self) -> list[int]:
        """The nodes it uses, by first appearance."""
        return list(dict.fromkeys(place.cluster_node_rank for place in self.members))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a launch needs to know, and nothing secret."""

    inventory: Inventory
    components: Mapping[str, ComponentPlan]
    findings: tuple[Finding, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)  # wishes of the job, by component

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", MappingProxyType(dict(self.components)))
        object.__setattr__(self, "shares", MappingProxyType(dict(self.shares)))

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy does not pickle
        rebuild = partial(
            Plan,
            inventory=self.inventory,
            components=dict(self.components),
            findings=self.findings,
            shares=dict(self.shares),
        )
        return rebuild, ()

    def devices_of(self, placement: Placement) -> Iterator[Device]:
        group = self.inventory.groups.get(placement.node_group_label)
        kind = group.hardware_type if group is not None else None
        label = placement.node_group_label if kind else ""
        for index in placement.hardware:
            yield Device(placement.cluster_node_rank, kind or ACCELERATOR, label, index)

    @cached_property
    def occupancy(self) -> Mapping[Device, tuple[Use, ...]]:
        """Who sits on each device that is used, in the order of the components."""
        counts: dict[Device, dict[str, int]] = {}
        for name, component in self.components.items():
            for placement in component.members:
                for device in self.devices_of(placement):
                    uses = counts.setdefault(device, {})
                    uses[name] = uses.get(name, 0) + 1
        return MappingProxyType(
            {
                device: tuple(Use(name, count) for name, count in uses.items())
                for device, uses in counts.items()
            }
        )

    @cached_property
    def shared(self) -> Mapping[Device, tuple[Use, ...]]:
        """The devices more than one process sits on."""
        shared = {
            device: uses for device, uses in self.occupancy.items() if len(uses) > 1 or uses[0].processes > 1
        }
        return MappingProxyType(shared)

    @cached_property
    def charges(self) -> Mapping[Device, Mapping[str, float]]:
        """What each component is charged in total on each accelerator in use, as a part of 1."""
        known: dict[tuple[str, ...], Mapping[str, float]] = {}
        charges = {}
        for device, uses in self.occupancy.items():
            if device.group:
                continue  # robots are not shared out
            names = tuple([use.component for use in uses])
            if names not in known:
                known[names] = MappingProxyType(charge(uses, self.shares))
            charges[device] = known[names]
        return MappingProxyType(charges)

    def share_of(self, component: str, rank: int) -> float:
        """What one process is charged on each of its accelerators; 0 where it has none."""
        if component not in self.components:
            remedy = nearest(component, self.components)
            raise PlacementError(
                Finding(code="RP106", what=f"unknown component {component!r}", remedy=remedy)
            )
        place = self.components[component].members[rank]
        parts = [
            ticks_of(self.charges[device][component]) // use.processes
            for device in self.devices_of(place)
            if not device.group
            for use in self.occupancy[device]
            if use.component == component
        ]
        return min(parts, default=0) / WHOLE

    @cached_property
    def idle(self) -> tuple[Device, ...]:
        """Accelerators nobody sits on."""
        robots = {label for label, group in self.inventory.groups.items() if group.hardware_type}
        used = {
            (place.cluster_node_rank, index)
            for members in {id(part.members): part.members for part in self.components.values()}.values()
            for place in members
            if place.node_group_label not in robots
            for index in place.hardware
        }
        return tuple(
            Device(node.rank, ACCELERATOR, "", index)
            for node in self.inventory.nodes
            for index in range(node.accelerators.count)
            if (node.rank, index) not in used
        )

    @cached_property
    def digest(self) -> str:
        """The same for the same decisions on the same nodes, whatever the wording of the job."""
        decisions: list[Any] = [
            [[node.rank, node.accelerators.count, node.accelerators.type] for node in self.inventory.nodes],
            [
                [
                    name,
                    [
                        [p.cluster_node_rank, p.hardware, p.visible, p.node_group_label]
                        for p in component.members
                    ],
                ]
                for name, component in sorted(self.components.items())
            ],
        ]
        if self.shares:
            decisions.append([list(wish) for wish in sorted(self.shares.items())])
        text = json.dumps(decisions, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def short_digest(self) -> str:
        """Enough of it to tell plans apart by eye."""
        return self.digest.removeprefix("sha256:")[:12]

    def to_dict(self) -> dict[str, Any]:
        from roost.planning.saved import plan_to_dict

        return plan_to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        from roost.planning.saved import plan_from_dict

        return plan_from_dict(data)
