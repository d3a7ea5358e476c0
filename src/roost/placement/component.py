"""Placements of a job's components, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from roost.config.job import ComponentRule, Job, read_job
from roost.errors import Finding, Path, PlacementError, RoostError, counted, error_for, nearest
from roost.inventory.group_reading import build_groups
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.placement.layouts import layout_rules
from roost.placement.placement import Placement
from roost.placement.spread import spread
from roost.placement.strategies import (
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PlacementStrategy,
    inventory_of,
)


class PlacementMode(Enum):
    COLLOCATED = "collocated"
    DISAGGREGATED = "disaggregated"
    HYBRID = "hybrid"


class ComponentPlacement:
    """Reads `cluster.component_placement` and `cluster.layout` and gives each component its strategy.

    Every problem of every component is collected; the constructor raises them together.
    """

    def __init__(self, config: Any, cluster: Any, overrides: Sequence[str] = ()) -> None:
        self.findings: list[Finding] = []
        inventory = inventory_of(cluster)
        job, problems = read_job(config, overrides, inventory.groups)
        self.findings += problems
        self.job: Job = job
        self.inventory: Inventory = self._fit(inventory)
        self._strategies: dict[str, PlacementStrategy] = {}
        self._ranks: dict[str, list[int]] = {}
        self._placements: dict[str, tuple[Placement, ...]] = {}
        self._broken: set[Path] | None = None
        self._left = 50_000 + 64 * (len(self.inventory.nodes) + self.inventory.num_accelerators)
        if "RI108" not in {finding.code for finding in self.findings}:
            self._lay_out_pool()
            self._compile()
        if any(finding.severity == "error" for finding in self.findings):
            raise error_for(self.findings)

    def _fit(self, inventory: Inventory) -> Inventory:
        """The job's part of the cluster, with the job's node groups."""
        wanted = self.job.num_nodes
        document = self.job.document
        if wanted is not None and wanted > len(inventory.nodes):
            self.findings.append(
                document.finding(
                    "RI108",
                    f"the job asks for {counted(wanted, 'node')}, the cluster has {len(inventory.nodes):,}",
                    ("cluster", "num_nodes"),
                    remedy="lower num_nodes, or use a larger cluster",
                )
            )
            _, problems = build_groups(self.job.groups, wanted, document, ("cluster", "node_groups"))
            self.findings += problems  # where things go on the nodes there are would be no news
            return inventory
        elif wanted is not None and wanted < len(inventory.nodes):
            self.findings.append(
                document.finding(
                    "RW105",
                    f"the job uses {wanted} of the cluster's {counted(len(inventory.nodes), 'node')}",
                    ("cluster", "num_nodes"),
                    why=f"num_nodes says so; {'node 0 is' if wanted == 1 else 'the first ones are'} taken",
                    remedy="raise num_nodes to use more",
                )
            )
            inventory = inventory.limited(wanted)
        if not self.job.groups:
            return inventory
        grouped, problems = inventory.with_groups(self.job.groups, document)
        self.findings += problems
        return grouped

    def _lay_out_pool(self) -> None:
        """Turn the job's layout, if it has one, into rules like any other's."""
        if self.job.layout is not None:
            rules, problems = layout_rules(self.job.layout, self.inventory, self.job.document)
            self.findings += problems
            self.job = replace(self.job, rules={**rules, **self.job.rules})

    # -- how a rule becomes a strategy; model-parallel placement overrides this --------------------------

    def _compile(self) -> None:
        first_of: dict[Path, str] = {}  # components of one rule share its work and its placements
        for name, rule in self.job.rules.items():
            twin = first_of.setdefault(rule.path, name)
            if twin != name:
                if twin in self._placements and self._afford(rule, len(self._placements[twin])):
                    for table in (self._strategies, self._ranks, self._placements):
                        table[name] = table[twin]  # type: ignore[index, assignment]
                continue
            if self._is_broken(rule):
                continue
            resources = self._resources(rule)
            if resources is None:
                continue
            shares = spread(rule, resources, self.job.document, self._left)
            self.findings += shares.findings
            if any(finding.severity == "error" for finding in shares.findings):
                continue
            self._left -= len(shares.processes)
            strategy: PlacementStrategy
            if resources.bare:
                strategy = NodePlacementStrategy([held[0] for held in shares.processes], rule.labels or None)
            else:
                strategy = FlexiblePlacementStrategy(shares.processes, rule.labels or None)
            self._place(rule, strategy, shares.ranks)

    def _is_broken(self, rule: ComponentRule) -> bool:
        """Whether something is already said against the rule or one of its groups."""
        if self._broken is None:
            paths = [finding.path for finding in self.findings if finding.severity == "error"]
            self._broken = {path[:3] for path in paths}
            for path in paths:
                group = self.job.groups[int(path[2])] if path[1:2] == ("node_groups",) and path[2:] else None
                if group is not None:
                    self._broken.add((group.label.strip(),))
        return rule.path[:3] in self._broken or any((label,) in self._broken for label in rule.labels)

    def _afford(self, rule: ComponentRule, count: int) -> bool:
        self._left -= count
        if self._left < 0:
            self.findings.append(
                self.job.document.finding(
                    "RL106",
                    f"{rule.name}: {counted(count, 'process')} more are too many",
                    rule.path[:3],
                    key=True,
                    why="the components before it have as many as roost places on a cluster of this size",
                    remedy="check for a digit too many",
                )
            )
        return self._left >= 0

    def _resources(self, rule: ComponentRule) -> Resources | None:
        try:
            return self.inventory.resources(rule.labels)
        except RoostError as error:
            self._blame(rule, error, rule.path[:3])
            return None

    def _place(self, rule: ComponentRule, strategy: PlacementStrategy, ranks: list[int]) -> None:
        groups = self.inventory.groups
        strategy.groups = {label: groups[label] for label in rule.labels if label in groups}
        try:
            placements = strategy.get_placement(self.inventory)
        except RoostError as error:
            self._blame(rule, error)
            return
        self._strategies[rule.name] = strategy
        self._ranks[rule.name] = ranks
        self._placements[rule.name] = tuple(placements)

    def _blame(self, rule: ComponentRule, error: RoostError, path: Path | None = None) -> None:
        """Give a strategy's problems the component's name and place in the file."""
        for problem in error.findings:
            self.findings.append(
                self.job.document.finding(
                    problem.code,
                    f"{rule.name}: {problem.what}",
                    path or rule.path,
                    key=path is not None,
                    why=problem.why,
                    remedy=problem.remedy,
                )
            )

    # -- what programs ask for -----------------------------------------------------------------------

    @property
    def components(self) -> list[str]:
        return list(self._strategies)

    @property
    def placement_mode(self) -> PlacementMode:
        """Collocated when all hold the same resources, disaggregated when none share, hybrid otherwise."""
        robots = {label for label, group in self.inventory.groups.items() if group.hardware_type}
        devices = [
            {
                (
                    place.cluster_node_rank,
                    place.node_group_label if place.node_group_label in robots else "",
                    rank,
                )
                for place in placements
                for rank in place.hardware or (-1,)  # a bare node
            }
            for placements in self._placements.values()
        ]
        if all(held == devices[0] for held in devices):
            return PlacementMode.COLLOCATED
        disjoint = sum(map(len, devices)) == len(set().union(*devices))
        return PlacementMode.DISAGGREGATED if disjoint else PlacementMode.HYBRID

    def get_strategy(self, component_name: str) -> PlacementStrategy:
        return self._strategies[self._known(component_name)]

    def get_world_size(self, component_name: str) -> int:
        return len(self._placements[self._known(component_name)])

    def get_hardware_ranks(self, component_name: str) -> list[int]:
        return list(self._ranks[self._known(component_name)])

    def get_placements(self, component_name: str) -> tuple[Placement, ...]:
        """With isolation, as planned; a strategy's `get_placement` can do without."""
        return self._placements[self._known(component_name)]

    @property
    def rules(self) -> Mapping[str, ComponentRule]:
        return self.job.rules

    def _known(self, name: str) -> str:
        if name not in self._strategies:
            raise PlacementError(
                Finding(
                    code="RP106",
                    what=f"unknown component {name!r}",
                    remedy=nearest(str(name), self._strategies),
                )
            )
        return name


class HybridComponentPlacement(ComponentPlacement):
    """Components on any resources, shared or not."""

    @property
    def placement_mode(self) -> PlacementMode:
        return PlacementMode.HYBRID
