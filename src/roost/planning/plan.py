"""The plan: every placement of a job, as one immutable value."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from roost.config.supervise import RestartPolicy
from roost.errors import ConfigurationError, Finding, PlacementError, nearest, shown
from roost.inventory.inventory import Inventory
from roost.inventory.resources import ACCELERATOR, BARE_NODE
from roost.placement.placement import Device
from roost.planning.component_plan import ComponentPlan
from roost.planning.occupancy import NodeOccupancy, Uses, is_shared, occupancy_of
from roost.planning.saved_format import FORMAT_VERSION, Damage, checksum, from_plain_data, to_plain_data
from roost.planning.shares import WHOLE, charge, share_problems, ticks_of

_MAPPINGS = ("components", "shares", "supervise")  # the fields that a plan holds as read-only mappings


def _refuse(what: str, why: str = "") -> ConfigurationError:
    remedy = "make it anew with `roost plan -o`"
    return ConfigurationError(code="RS101", what=what, why=why, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a launch needs.

    The environments of its node groups may hold secrets. A plan is saved and shown without them.
    """

    inventory: Inventory
    components: Mapping[str, ComponentPlan]
    findings: tuple[Finding, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)  # that the job asks for, by component
    job_file: str = ""  # the name of the job's file, if it had one
    supervise: Mapping[str, RestartPolicy] = field(default_factory=dict)  # by component

    def __post_init__(self) -> None:
        for name in _MAPPINGS:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy does not pickle
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return partial(Plan, **{**values, **{name: dict(values[name]) for name in _MAPPINGS}}), ()

    def _repr_html_(self) -> str:
        """The plan as a picture, for notebooks."""
        # Views know plans, and no plan knows views; only here one is looked up by its name.
        svg: str = import_module("roost.views.svg").render_svg(self, job=self.job_file)
        return f'<div style="overflow-x: auto">{svg}</div>'

    def without_secrets(self) -> Plan:
        """The plan as it is saved: a variable that looks secret keeps its name and loses its value."""
        groups = {label: group.without_secrets() for label, group in self.inventory.groups.items()}
        return replace(self, inventory=replace(self.inventory, groups=groups))

    def component(self, name: str) -> ComponentPlan:
        if name not in self.components:
            what = f"unknown component {name!r}"[:200]
            raise PlacementError(code="RP106", what=what, remedy=nearest(str(name), self.components))
        return self.components[name]

    @cached_property
    def nodes(self) -> tuple[NodeOccupancy, ...]:
        """The components on each node and its devices."""
        members = {name: component.members for name, component in self.components.items()}
        return occupancy_of(self.inventory, members)

    @cached_property
    def occupancy(self) -> Mapping[Device, Uses]:
        """The components on each used device, in the order of the plan."""
        used = {device: uses for node in self.nodes for device, uses in node.devices() if uses}
        return MappingProxyType(used)

    @cached_property
    def cells(self) -> Mapping[Uses, int]:
        """How many accelerators have the same processes on them. Counts rows, which equal nodes share."""
        rows = {id(place.accelerators): place.accelerators for place in self.nodes}
        cells: Counter[Uses] = Counter()
        for row, times in Counter(id(place.accelerators) for place in self.nodes).items():
            for uses in rows[row]:
                cells[uses] += times
        return MappingProxyType(cells)

    @cached_property
    def shared(self) -> Mapping[Device, Uses]:
        """The devices with more than one process."""
        shared = {device: uses for device, uses in self.occupancy.items() if is_shared(uses)}
        return MappingProxyType(shared)

    @cached_property
    def idle(self) -> tuple[Device, ...]:
        """The accelerators without a process."""
        return tuple(
            Device(place.node.rank, ACCELERATOR, "", number)
            for place in self.nodes
            if () in place.accelerators
            for number, uses in enumerate(place.accelerators)
            if not uses
        )

    @cached_property
    def charges(self) -> Mapping[Device, Mapping[str, float]]:
        """The share that each component is charged in total on each used accelerator; a whole one is 1."""
        known: dict[Uses, Mapping[str, float]] = {}
        charges = {}
        for device, uses in self.occupancy.items():
            if device.group:
                continue  # only accelerators have shares
            if uses not in known:
                known[uses] = MappingProxyType(charge(uses, self.shares))
            charges[device] = known[uses]
        return MappingProxyType(charges)

    def share_of(self, component: str, rank: int) -> float:
        """The share that one process is charged on each of its accelerators; 0 if it has none."""
        place = self.component(component).members[rank]
        row = self.nodes[place.cluster_node_rank].accelerators
        held = {row[number] for number in place.hardware} if place.holds_accelerators else set[Uses]()
        parts = [ticks_of(charge(uses, self.shares)[component]) // dict(uses)[component] for uses in held]
        return min(parts, default=0) / WHOLE

    @cached_property
    def digest(self) -> str:
        """A hash of the decisions and of the nodes' shapes. It does not depend on the wording of the job."""
        decisions: list[Any] = [
            [[node.rank, node.accelerators.count, node.accelerators.type] for node in self.inventory.nodes],
            [_decisions(component) for _, component in sorted(self.components.items())],
        ]
        if self.shares:
            decisions.append([list(wish) for wish in sorted(self.shares.items())])
        if self.supervise:
            decisions.append({name: one.to_dict() for name, one in sorted(self.supervise.items())})
        text = json.dumps(decisions, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def short_digest(self) -> str:
        """The start of the digest, enough to tell plans apart."""
        return self.digest.removeprefix("sha256:")[:12]

    def to_dict(self) -> dict[str, Any]:
        """The saved form: the decisions as plain data, without secrets."""
        data = to_plain_data(self.without_secrets(), self.digest)
        own = [name for name, one in self.components.items() if not one.rule]
        if own:  # the user may have written the strategy that placed them
            try:
                Plan.from_dict(data)
            except ConfigurationError:
                what = f"the placements of {', '.join(map(repr, own))} cannot be saved"
                why = "a saved plan has the node and the devices of each process, and rebuilds what it sees of them"
                remedy = "let the strategy isolate all processes or none, and make only those devices visible"
                raise ConfigurationError(code="RS102", what=what, why=why, remedy=remedy) from None
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Read the saved form and check it. The plan lacks its secrets."""
        version = data.get("format_version") if isinstance(data, Mapping) else None
        if isinstance(version, bool) or version != FORMAT_VERSION:
            found = f"it is of format {shown(version)}" if isinstance(version, int) else ""
            raise _refuse(f"this is not a saved plan of format {FORMAT_VERSION}", found)
        try:
            read, sum_of_data = from_plain_data(data), checksum(data)
        except Damage as damage:
            raise _refuse("the plan is damaged", str(damage)) from None
        plan = cls(**read)
        if share_problems(plan.occupancy, plan.shares):
            raise _refuse("the plan is damaged", "its shares do not add up")
        if plan.digest != data.get("digest"):
            raise _refuse("the plan does not match its digest", "it was edited after it was made")
        if data.get("checksum") != sum_of_data:
            raise _refuse("the plan does not match its checksum", "it was edited after it was made")
        return plan


def _decisions(component: ComponentPlan) -> list[Any]:
    usual = (ACCELERATOR, BARE_NODE)  # a robot's kind is part of the decision
    places = [
        [
            p.cluster_node_rank,
            p.hardware,
            p.visible,
            p.node_group_label,
            *(() if p.kind in usual else (p.kind,)),
        ]
        for p in component.members
    ]
    engines = component.engines
    formed = [] if engines is None else [[engines.processes, engines.server, engines.kind]]
    return [component.name, places, *formed]
