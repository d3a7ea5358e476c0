"""The inventory: every node of a cluster, and the node groups that a job declares."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from roost.config.document import Document, load
from roost.config.job import RESERVED_LABELS
from roost.config.labels import known_groups, split_labels
from roost.config.schema import ClusterConfig, validate
from roost.errors import ConfigurationError, Finding, counted, error_for, errors_in, render
from roost.inventory.group_reading import build_groups
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.inventory.nodes import Node
from roost.inventory.reading import parse_shape, read_inventory_file, read_mapping, uniform_nodes
from roost.inventory.resources import ACCELERATOR, BARE_NODE, Resources

log = logging.getLogger("roost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The nodes of a cluster in rank order, and its node groups."""

    nodes: tuple[Node, ...]
    groups: Mapping[str, NodeGroup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))

    def __hash__(self) -> int:
        return hash((self.nodes, frozenset(self.groups)))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy does not pickle
        return partial(Inventory, nodes=self.nodes, groups=dict(self.groups)), ()

    @classmethod
    def parse(cls, text: str) -> Inventory:
        """`4x8`, or a mixed `2x8:A800,1x4:4090,2x0`."""
        return cls(nodes=parse_shape(text))

    @classmethod
    def uniform(cls, num_nodes: int, accelerators: int, **more: Any) -> Inventory:
        """`num_nodes` nodes of `accelerators` each; `type`, `model`, `memory_gib` and `cpus` may follow."""
        return cls(nodes=uniform_nodes(num_nodes, accelerators, **more))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Inventory:
        return cls(nodes=read_mapping(data, "<inventory>"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Inventory:
        return cls(nodes=read_inventory_file(FilePath(path)))

    def grouped(self, node_groups: Sequence[Any] | None) -> Inventory:
        """A new inventory with these node groups, given as in a config."""
        document = load(node_groups, inside=("cluster", "node_groups"))
        config, findings = validate(ClusterConfig, document.data["cluster"], document, ("cluster",))
        if config is not None:
            inventory, more = self.with_groups(config.node_groups or (), document)
            findings += more
        if errors_in(findings) or config is None:
            raise error_for(findings)
        if findings:
            log.warning("%s", render(findings))
        return inventory

    def with_groups(self, configs: Sequence[Any], document: Document) -> tuple[Inventory, list[Finding]]:
        groups, findings = build_groups(configs, len(self.nodes), document)
        return replace(self, groups=groups), findings

    def joined(self, groups: Mapping[str, NodeGroup]) -> Inventory:
        """The inventory with these groups added. Each replaces the group of its name, if there is one."""
        for group in groups.values():
            if max(group.node_ranks, default=0) >= len(self.nodes):
                what = f"node group {group.label!r}: node {max(group.node_ranks)} does not exist"
                why = f"it is one of a job's, and here are {counted(len(self.nodes), 'node')}"
                remedy = "use a cluster as large as the one the job was placed on"
                raise ConfigurationError(code="RI104", what=what, why=why, remedy=remedy)
        return replace(self, groups={**self.groups, **groups}) if groups else self

    def without(self, labels: Collection[str]) -> Inventory:
        """The same nodes, without these groups."""
        return replace(self, groups={name: one for name, one in self.groups.items() if name not in labels})

    def limited(self, num_nodes: int) -> Inventory:
        """The first `num_nodes` nodes, and the groups without the other nodes."""
        if num_nodes >= len(self.nodes):
            return self
        groups = {label: group.limited(num_nodes) for label, group in self.groups.items()}
        left = {label: group for label, group in groups.items() if group.node_ranks}
        return Inventory(nodes=self.nodes[:num_nodes], groups=left)

    def resources(self, labels: Any = None) -> Resources:
        """The resources that ranks count through these groups, in the order of the labels."""
        names = self._known(labels)
        # If one of the groups counts nodes, all do: ranks cannot count nodes and hardware at once.
        return self._counted(names, bare=any(self._counts_nodes(name) for name in names))

    def nodes_as_resources(self, labels: Any = None) -> Resources:
        """The nodes of these groups, with or without hardware."""
        return self._counted(self._known(labels), bare=True)

    def _counted(self, names: tuple[str, ...], bare: bool) -> Resources:
        parts = [part for name in names for part in self._parts(name, bare)]
        return _without_doubles(Resources.of(names, parts, bare))

    def _known(self, labels: Any) -> tuple[str, ...]:
        names = split_labels(labels) or ("cluster",)
        for name in names:
            if name not in self.groups and name not in RESERVED_LABELS:
                remedy = known_groups(name, [*self.groups, *RESERVED_LABELS])
                raise ConfigurationError(code="RI103", what=f"unknown node group {name!r}", remedy=remedy)
        return names

    def _members(self, label: str) -> Sequence[Node]:
        if label in RESERVED_LABELS:
            return self.nodes
        return [self.nodes[rank] for rank in self.groups[label].node_ranks]

    def _counts_nodes(self, label: str) -> bool:
        group = self.groups.get(label)
        if label == "node" or (group is not None and group.ignore_hardware):
            return True
        if group is not None and group.hardware_type is not None:
            return False
        return not any(node.accelerators.count for node in self._members(label))

    def _parts(self, label: str, bare: bool) -> list[tuple[Node, str, str, int]]:
        members = self._members(label)
        if bare:
            return [(node, label, BARE_NODE, 1) for node in members]
        group = self.groups.get(label)
        if group is not None and group.hardware_type is not None:
            counts = Counter(unit.node_rank for unit in group.hardware)
            return [(node, label, group.hardware_type, counts[node.rank]) for node in members]
        return [(node, label, ACCELERATOR, node.accelerators.count) for node in members]

    def environment(self, label: str, node_rank: int) -> NodeEnvironment:
        """Variables and interpreter of a process that this group places on this node."""
        group = self.groups.get(label)
        variables: dict[str, str | None] = {}
        interpreter = None
        for setting in group.environments if group else ():
            if node_rank in setting.node_ranks:
                variables.update(setting.env_vars)
                interpreter = setting.python_interpreter_path or interpreter
        return NodeEnvironment(
            node_ranks=(node_rank,), env_vars=tuple(variables.items()), python_interpreter_path=interpreter
        )

    @property
    def num_accelerators(self) -> int:
        return sum(node.accelerators.count for node in self.nodes)

    def __str__(self) -> str:
        return f"{counted(len(self.nodes), 'node')}, {counted(self.num_accelerators, 'accelerator')}"


def _without_doubles(resources: Resources) -> Resources:
    """The resources. Raises if the groups count one of them twice."""
    labels = resources.labels
    if len(labels) < 2:
        return resources
    why = "its resources would be counted twice"
    twice = next((label for index, label in enumerate(labels) if label in labels[:index]), None)
    if twice is not None:
        what = f"the node group {twice!r} is named twice"
        raise ConfigurationError(code="RP107", what=what, why=why, remedy="name each group once")
    seen: dict[tuple[int, str], str] = {}
    for slot in resources.slots:
        other = seen.setdefault((slot.node.rank, slot.kind), slot.group)
        if other != slot.group and slot.kind in (ACCELERATOR, BARE_NODE):
            what = f"node {slot.node.rank} is in both {other!r} and {slot.group!r}"
            remedy = "place through one of the groups, or make them disjoint"
            raise ConfigurationError(code="RP107", what=what, why=why, remedy=remedy)
    return resources
