"""The differences between two plans, or between a plan and a cluster: by node, node group, component and rank.

The wording of a job does not count. The places of the processes and the settings they start with do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Literal

from roost.config.ranks import ranges
from roost.errors import counted
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.inventory.resources import ACCELERATOR
from roost.placement.placement import Placement
from roost.planning.plan import Plan

ChangeKind = Literal["added", "gone", "changed"]
ProcessChangeKind = Literal["added", "gone", "moved", "changed"]  # `changed`: on the same node


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The node and devices of a process, and the node group that placed it."""

    node: int
    kind: str
    devices: tuple[int, ...]
    group: str

    @classmethod
    def of(cls, place: Placement) -> Seat:
        return cls(
            node=place.cluster_node_rank,
            kind=place.kind,
            devices=place.hardware,
            group=place.node_group_label,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting before and after, in words; empty if it is not set."""

    setting: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessChange:
    rank: int
    change: ProcessChangeKind
    before: Seat | None
    after: Seat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentChange:
    component: str
    change: ChangeKind
    settings: tuple[SettingChange, ...] = ()
    processes: tuple[ProcessChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    node: int
    change: ChangeKind
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroupChange:
    label: str
    change: ChangeKind
    settings: tuple[SettingChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    nodes: tuple[NodeChange, ...] = ()
    node_groups: tuple[NodeGroupChange, ...] = ()
    components: tuple[ComponentChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.node_groups or self.components)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_differences(before: Plan, after: Plan) -> Differences:
    """The changes from the first plan to the second. Secrets are neither compared nor shown."""
    before, after = before.without_secrets(), after.without_secrets()
    return Differences(
        nodes=tuple(_node_changes(before.inventory.nodes, after.inventory.nodes)),
        node_groups=tuple(_group_changes(before.inventory.groups, after.inventory.groups)),
        components=tuple(_component_changes(before, after)),
    )


def cluster_differences(plan: Plan, cluster: Inventory) -> Differences:
    """The plan's nodes that the cluster lacks or has otherwise, and the processes that lose their place.

    The cluster may have more nodes than the plan.
    """
    there = cluster.nodes[: len(plan.inventory.nodes)]
    found = []
    for name, component in plan.components.items():
        lost = [place for place in component.members if not _has_room(there, place)]
        if lost:
            gone = tuple(_process(place.rank, Seat.of(place), None) for place in lost)
            found.append(ComponentChange(component=name, change="changed", processes=gone))
    return Differences(nodes=tuple(_node_changes(plan.inventory.nodes, there)), components=tuple(found))


def _has_room(nodes: Sequence[Node], place: Placement) -> bool:
    if place.cluster_node_rank >= len(nodes):
        return False
    held = nodes[place.cluster_node_rank].accelerators
    return not place.holds_accelerators or (
        held.type == place.accelerator_type and max(place.hardware) < held.count
    )


# -- nodes and node groups ---------------------------------------------------------------------------------


def _node_changes(before: Sequence[Node], after: Sequence[Node]) -> Iterator[NodeChange]:
    for rank, (old, new) in enumerate(zip_longest(before, after)):
        if old is None or new is None:
            change: ChangeKind = "added" if old is None else "gone"
            yield NodeChange(node=rank, change=change, before=_in_words(old), after=_in_words(new))
        elif _shape(old, new) != _shape(new, old) or _host(old, new) != _host(new, old):
            words = _in_words(old, _host(old, new)), _in_words(new, _host(new, old))
            yield NodeChange(node=rank, change="changed", before=words[0], after=words[1])


def _shape(node: Node, other: Node) -> tuple[object, ...]:
    """The facts that decide whether a plan fits a node. A model counts only if both nodes name one."""
    held, known = node.accelerators, node.accelerators.model and other.accelerators.model
    return held.count, held.type if held.count else "", held.model if known else ""


def _host(node: Node, other: Node) -> str:
    """The address or the name of a node, if the other node has one too: the nodes of `2x8` have neither."""
    if node.ip and other.ip:
        return node.ip
    return node.hostname if node.hostname and other.hostname else ""


def _in_words(node: Node | None, host: str = "") -> str:
    if node is None:
        return ""
    held = node.accelerators
    has = f"{held.count} x {held.model or held.type}" if held.count else "no accelerators"
    return f"{host}, {has}" if host else has


def _group_changes(
    before: Mapping[str, NodeGroup], after: Mapping[str, NodeGroup]
) -> Iterator[NodeGroupChange]:
    for label in {**before, **after}:
        if label not in before or label not in after:
            yield NodeGroupChange(label=label, change="added" if label in after else "gone")
        else:
            settings = tuple(_unequal(_group_settings(before[label]), _group_settings(after[label])))
            settings += tuple(_environment_changes(before[label], after[label]))
            if settings:
                yield NodeGroupChange(label=label, change="changed", settings=settings)


def _group_settings(group: NodeGroup) -> dict[str, str]:
    units = ranges(unit.node_rank for unit in group.hardware)
    count = len(group.hardware)
    return {
        "nodes": ranges(group.node_ranks),
        "hardware": f"{count} x {group.hardware_type} on nodes {units}" if group.hardware_type else "",
        "ignore_hardware": "true" if group.ignore_hardware else "",
    }


def _environment_changes(before: NodeGroup, after: NodeGroup) -> Iterator[SettingChange]:
    """Variables and interpreters that are set on other nodes, or to other values. Does not show values."""
    old, new = _variables(before), _variables(after)
    for name in {**old, **new}:
        nodes = [ranges(values.get(name, {})) for values in (old, new)]
        if old.get(name) != new.get(name):
            first, second = (f"on node{'s' * (not one.isdecimal())} {one}" if one else "" for one in nodes)
            second += ", another value" if nodes[0] == nodes[1] else ""
            yield SettingChange(setting=name, before=first, after=second)


def _variables(group: NodeGroup) -> dict[str, dict[int, str | None]]:
    found: dict[str, dict[int, str | None]] = {}
    for environment in group.environments:
        values = list(environment.env_vars)
        if environment.python_interpreter_path:
            values.append(("python_interpreter_path", environment.python_interpreter_path))
        for name, value in values:
            found.setdefault(name, {}).update(dict.fromkeys(environment.node_ranks, value))
    return found


# -- components and their processes ------------------------------------------------------------------------


def _component_changes(before: Plan, after: Plan) -> Iterator[ComponentChange]:
    for name in {**before.components, **after.components}:
        old = before.components[name].members if name in before.components else ()
        new = after.components[name].members if name in after.components else ()
        processes = tuple(_process_changes(old, new))
        settings: tuple[SettingChange, ...] = ()
        if old and new:
            settings = tuple(_unequal(_settings(before, name), _settings(after, name)))
        if processes or settings:
            change: ChangeKind = "added" if not old else "changed" if new else "gone"
            yield ComponentChange(component=name, change=change, settings=settings, processes=processes)


def _process_changes(old: Sequence[Placement], new: Sequence[Placement]) -> Iterator[ProcessChange]:
    for rank, (before, after) in enumerate(zip_longest(map(Seat.of, old), map(Seat.of, new))):
        if before != after:
            yield _process(rank, before, after)


def _process(rank: int, before: Seat | None, after: Seat | None) -> ProcessChange:
    change: ProcessChangeKind
    if before is None or after is None:
        change = "added" if before is None else "gone"
    else:
        change = "changed" if before.node == after.node else "moved"
    return ProcessChange(rank=rank, change=change, before=before, after=after)


def _settings(plan: Plan, name: str) -> dict[str, str]:
    component = plan.components[name]
    engines, seen = component.engines, component.members[0]
    followed = plan.supervise[name].to_dict() if name in plan.supervise else {}
    return {
        "engines": ""
        if engines is None
        else f"{counted(engines.processes, 'process')} each, {engines.kind}, of server {engines.server}",
        "sees": ""
        if seen.isolate_accelerator or seen.kind != ACCELERATOR
        else "all accelerators of its node",
        "share": f"{plan.shares[name]:g}" if name in plan.shares else "",
        "supervise": ", ".join(
            f"{key} {value}" for key, value in followed.items() if value not in ([], None)
        ),
    }


def _unequal(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[SettingChange]:
    for name, value in before.items():
        if value != after[name]:
            yield SettingChange(setting=name, before=value, after=after[name])
