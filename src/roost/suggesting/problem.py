"""A problem: a profile together with the accelerators of a cluster, checked against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from roost.config.job import RESERVED_LABELS
from roost.config.labels import known_groups, split_labels
from roost.errors import Finding, error_for
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.suggesting.cost_curves import CostCurve, cost_curve
from roost.suggesting.profile import ComponentProfile, Profile

WHOLE = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorGroup:
    """The accelerators of a node group: equally many on each node, of equal memory."""

    label: str
    total: int
    per_node: int
    memory_gib: float | None  # None: the inventory does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    profile: Profile
    groups: tuple[AcceleratorGroup, ...]
    curves: Mapping[str, Mapping[str, CostCurve]]  # by component, by group; empty: no accelerator

    def group(self, label: str) -> AcceleratorGroup:
        return next(group for group in self.groups if group.label == label)

    @property
    def totals(self) -> dict[str, int]:
        """The accelerators of each group."""
        return {group.label: group.total for group in self.groups}

    @property
    def widths(self) -> dict[str, int]:
        """The width of each component with accelerators."""
        return {name: part.width for name, part in self.profile.components.items() if part.needs_accelerators}


def pose(profile: Profile, inventory: Inventory, groups: Any = None) -> Problem:
    """The problem of a profile on these groups of an inventory. One error holds all problems."""
    labels, findings = _labels(profile, inventory, groups)
    members = {label: _nodes(inventory, label) for label in labels}
    findings += _overlaps(members)
    found = []
    for label, nodes in members.items():
        findings += _unequal(label, nodes)
        held = nodes[0].accelerators
        found.append(
            AcceleratorGroup(
                label=label,
                total=sum(node.accelerators.count for node in nodes),
                per_node=held.count,
                memory_gib=held.memory_gib,
            )
        )
    if not findings:  # the widths are compared with equal nodes
        findings += _widths(profile, found)
    curves: dict[str, dict[str, CostCurve]] = {}
    for name, part in profile.components.items():
        if part.needs_accelerators and not any(map(part.table, labels)):
            named = ", ".join(part.measured)
            findings.append(
                profile.document.finding(
                    "RF104",
                    f"{name}: none of its node groups can be used ({named})",
                    (*profile.at(name), "seconds"),
                    why=f"the groups are {', '.join(labels) or 'none'}",
                    remedy="name one of them, or measure it on these groups",
                )
            )
        curves[name] = curves_of(part, found)
    if findings:
        raise error_for(findings)
    return Problem(profile=profile, groups=tuple(found), curves=curves)


def curves_of(part: ComponentProfile, groups: Sequence[AcceleratorGroup]) -> dict[str, CostCurve]:
    """The curves of a component, by the label of each group that is large enough for it."""
    return {
        group.label: cost_curve(table, part.width, group.total)
        for group in groups
        if (table := part.table(group.label)) and min(table) <= group.total
    }


def _labels(profile: Profile, inventory: Inventory, groups: Any) -> tuple[tuple[str, ...], list[Finding]]:
    """The labels of the groups to use. Without any, those that the profile names, or the whole cluster."""
    wanted = split_labels(groups)
    known = (*inventory.groups, WHOLE)
    if not wanted:
        parts = [part for part in profile.components.values() if part.needs_accelerators]
        named = dict.fromkeys(label for part in parts for label in part.measured if label in known)
        anywhere = any("" in part.measured for part in parts)
        return tuple(named) + ((WHOLE,) if anywhere or not named else ()), []
    findings = [
        Finding(code="RI103", what=f"unknown node group {label!r}", remedy=known_groups(label, known))
        for label in wanted
        if label not in known
    ]
    for label in wanted:
        group = inventory.groups.get(label)
        if group is not None and (group.ignore_hardware or group.hardware_type is not None):
            what = f"the accelerators of group {label!r} cannot be used"
            why = "the group counts nodes or other hardware"
            findings.append(Finding(code="RF104", what=what, why=why, remedy="name a group of accelerators"))
    return tuple(label for label in wanted if label in known), findings


def _nodes(inventory: Inventory, label: str) -> Sequence[Node]:
    if label in RESERVED_LABELS:
        return inventory.nodes
    return [inventory.nodes[rank] for rank in inventory.groups[label].node_ranks]


def _overlaps(members: Mapping[str, Sequence[Node]]) -> Iterator[Finding]:
    for (one, first), (other, second) in combinations(members.items(), 2):
        named = ",".join(label for label in members if label != WHOLE)
        both = sorted({node.rank for node in first} & {node.rank for node in second})
        if both:
            yield Finding(
                code="RF104",
                what=f"the node groups {one!r} and {other!r} overlap",
                why=f"node {both[0]} is in both",
                remedy=(
                    f"write --groups {named}" if WHOLE in (one, other) else "name groups that share no node"
                )
                + "; a component measured without a group may be on any of them",
            )


def _unequal(label: str, nodes: Sequence[Node]) -> Iterator[Finding]:
    for noun, values in (
        ("accelerators", {node.accelerators.count: node.rank for node in reversed(nodes)}),
        ("GiB per accelerator", {node.accelerators.memory_gib: node.rank for node in reversed(nodes)}),
    ):
        if len(values) > 1:
            (one, first), (other, second) = sorted(values.items(), key=lambda item: item[1])[:2]
            yield Finding(
                code="RF104",
                what=f"the nodes of {label!r} are not alike: "
                f"{_amount(one)} {noun} on node {first}, {_amount(other)} on node {second}",
                remedy="make node groups of equal nodes, and name them",
            )


def _amount(value: float | None) -> str:
    return "an unknown number of" if value is None else f"{value:g}"


def _widths(profile: Profile, groups: Sequence[AcceleratorGroup]) -> Iterator[Finding]:
    widths: dict[int, str] = {}
    for name, part in profile.components.items():
        if part.needs_accelerators:
            widths.setdefault(part.width, name)

    def finding(name: str, what: str, remedy: str) -> Finding:
        path = (*profile.at(name), "accelerators_per_process")
        return profile.document.finding("RF103", what, path, remedy=remedy)

    for (one, name), (other, second) in combinations(sorted(widths.items()), 2):
        if other % one:
            what = f"the widths {one} of {name} and {other} of {second} do not divide each other"
            yield finding(second, what, "choose widths of which one divides the other, such as 2, 4 and 8")
    for width, name in widths.items():
        for group in groups:
            if group.per_node and width % group.per_node and group.per_node % width:
                what = f"{name} is {width} wide, and the nodes of {group.label!r} have {group.per_node} accelerators"
                yield finding(name, what, f"choose a divisor or a multiple of {group.per_node}")
