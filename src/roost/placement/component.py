"""Placements of a job's components, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from roost.config.job import ComponentRule, Job, read_job
from roost.errors import Finding, Path, PlacementError, RoostError, error_for, nearest
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
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
    """Reads `cluster.component_placement` and gives each component its strategy.

    Every problem of every component is collected; the constructor raises them together.
    """

    def __init__(self, config: Any, cluster: Any, overrides: Sequence[str] = ()) -> None:
        self.findings: list[Finding] = []
        job, problems = read_job(config, overrides)
        self.findings += problems
        self.job: Job = job
        self.inventory: Inventory = self._fit(inventory_of(cluster))
        self._strategies: dict[str, PlacementStrategy] = {}
        self._ranks: dict[str, list[int]] = {}
        self._placements: dict[str, tuple[Placement, ...]] = {}
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
                    f"the job asks for {wanted} nodes, the cluster has {len(inventory.nodes)}",
                    ("cluster", "num_nodes"),
                    remedy="lower num_nodes, or use a larger cluster",
                )
            )
        elif wanted is not None and wanted < len(inventory.nodes):
            self.findings.append(
                document.finding(
                    "RW105",
                    f"the job uses {wanted} of {len(inventory.nodes)} nodes",
                    ("cluster", "num_nodes"),
                    why="num_nodes says so; the first ones are taken",
                )
            )
            inventory = inventory.limited(wanted)
        grouped, problems = inventory.with_groups(self.job.groups, document)
        self.findings += problems
        if problems and not self.job.groups:
            return inventory
        return grouped if self.job.groups else inventory

    # -- how a rule becomes a strategy; model-parallel placement overrides this --------------------------

    def _compile(self) -> None:
        broken = {finding.path[:3] for finding in self.findings if finding.severity == "error"}
        first_of: dict[Path, str] = {}  # components of one rule share its work and its placements
        for name, rule in self.job.rules.items():
            if any(self._group_broken(label) for label in rule.labels) or rule.path[:3] in broken:
                continue
            twin = first_of.setdefault(rule.path, name)
            if twin != name:
                for table in (self._strategies, self._ranks, self._placements):
                    if twin in table:
                        table[name] = table[twin]  # type: ignore[index, assignment]
                continue
            resources = self._resources(rule)
            if resources is None:
                continue
            shares = spread(rule, resources, self.job.document)
            self.findings += shares.findings
            if any(finding.severity == "error" for finding in shares.findings):
                continue
            strategy: PlacementStrategy
            if resources.bare:
                strategy = NodePlacementStrategy([held[0] for held in shares.processes], rule.labels or None)
            else:
                strategy = FlexiblePlacementStrategy(shares.processes, rule.labels or None)
            self._place(rule, strategy, shares.ranks)

    def _group_broken(self, label: str) -> bool:
        return any(
            finding.severity == "error" and finding.path[:2] == ("cluster", "node_groups")
            for finding in self.findings
        ) and label not in ("cluster", "node")

    def _resources(self, rule: ComponentRule) -> Resources | None:
        resources = self.inventory.resources(rule.labels)
        seen: dict[tuple[int, str], str] = {}
        for slot in resources.slots:
            other = seen.setdefault((slot.node.rank, slot.kind), slot.group)
            if other != slot.group:
                self.findings.append(
                    self.job.document.finding(
                        "RP107",
                        f"{rule.name}: node {slot.node.rank} is in both {other!r} and {slot.group!r}",
                        rule.path[:3],
                        key=True,
                        why="its resources would be counted twice",
                        remedy="place through one of the groups, or make them disjoint",
                    )
                )
                return None
        return resources

    def _place(self, rule: ComponentRule, strategy: PlacementStrategy, ranks: list[int]) -> None:
        try:
            placements = strategy.get_placement(self.inventory)
        except RoostError as error:
            self._blame(rule, error)
            return
        self._strategies[rule.name] = strategy
        self._ranks[rule.name] = ranks
        self._placements[rule.name] = tuple(placements)

    def _blame(self, rule: ComponentRule, error: RoostError) -> None:
        """Give a strategy's problems the component's name and place in the file."""
        for problem in error.findings:
            self.findings.append(
                self.job.document.finding(
                    problem.code,
                    f"{rule.name}: {problem.what}",
                    rule.path,
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
        held = [
            {(place.cluster_node_rank, *place.hardware) for place in placements}
            for placements in self._placements.values()
        ]
        if all(one == held[0] for one in held):
            return PlacementMode.COLLOCATED
        devices = [
            {(place.cluster_node_rank, device) for place in placements for device in place.hardware or (-1,)}
            for placements in self._placements.values()
        ]
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
