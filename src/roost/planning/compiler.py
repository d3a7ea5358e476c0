"""Compiles a job to a plan: every rule becomes placements, every problem a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roost.config.document import Findings
from roost.config.job import ComponentRule, Job, read_job
from roost.errors import Finding, Path, RoostError, counted, error_for, errors_in
from roost.inventory.group_reading import build_groups
from roost.inventory.inventory import Inventory
from roost.inventory.resources import Resources
from roost.placement.layouts import layout_rules
from roost.placement.placement import Assignment, Placement, make_placements
from roost.placement.spread import spread
from roost.placement.strategies import hold
from roost.planning.component_plan import ComponentPlan, Engines
from roost.planning.plan import Plan
from roost.planning.policy_checks import policy_problems
from roost.planning.shares import share_problems


def fitted(job: Job, inventory: Inventory) -> tuple[Inventory | None, list[Finding]]:
    """The inventory's nodes that a job uses, with its node groups; None if there are too few nodes."""
    wanted, there, findings = job.num_nodes, len(inventory.nodes), Findings(job.document)
    path = ("cluster", "num_nodes")
    if wanted is not None and wanted > there:
        what = f"the job asks for {counted(wanted, 'node')}, the cluster has {there:,}"
        findings.add("RI108", what, path, remedy="lower num_nodes, or use a larger cluster")
        _, problems = build_groups(job.groups, wanted, job.document)
        return None, [*findings, *problems]  # placing on too few nodes would only add problems
    if wanted is not None and wanted < there:
        what = f"the job uses {wanted} of the cluster's {counted(there, 'node')}"
        why = f"num_nodes says so; {'node 0 is' if wanted == 1 else 'the first ones are'} taken"
        findings.add("RW105", what, path, why=why, remedy="raise num_nodes to use more")
        inventory = inventory.limited(wanted)
    if job.groups:
        inventory, problems = inventory.with_groups(job.groups, job.document)
        findings += problems
    return inventory, findings


class JobCompiler:
    """Places every component of a job. All problems of all components are collected, then raised together."""

    def __init__(
        self,
        source: Any,
        inventory: Inventory,
        overrides: Sequence[str] = (),
        granted: Sequence[int] | None = None,
    ) -> None:
        """`granted` are the resource ranks of a layout's pool that is reserved already."""
        self.job, found = read_job(source, overrides, inventory.groups)
        self.findings = Findings(self.job.document, found)
        self.inventory, self.granted = inventory, granted
        self.components: dict[str, ComponentPlan] = {}
        self._engines: dict[str, Engines] = {}
        self._broken: set[Path] | None = None
        self._left = 0  # processes that may still be placed

    def compiled(self) -> Plan:
        """The plan, with the warnings of its compilation. The planner adds advice."""
        inventory, problems = fitted(self.job, self.inventory)
        self.findings += problems
        if inventory is not None:
            self.inventory = inventory
            self._left = 50_000 + 64 * (len(self.inventory.nodes) + self.inventory.num_accelerators)
            self._lay_out_pool()
            self._place_components()
        self._raise_errors()
        shares = {name: share for name, share in self.job.shares.items() if name in self.components}
        plan = Plan(
            inventory=self.inventory,
            components=self.components,
            shares=shares,
            job_file=self.job.document.file_name,
            supervise={name: one for name, one in self.job.supervise.items() if name in self.components},
        )
        problems = [*policy_problems(plan), *(share_problems(plan.occupancy, shares) if shares else ())]
        self.findings += (
            replace(problem, where=self.job.document.key_span(problem.path)) for problem in problems
        )
        self._raise_errors()
        return replace(plan, findings=tuple(map(_without_source_text, self.findings)))

    def _raise_errors(self) -> None:
        if errors_in(self.findings):
            raise error_for(self.findings)

    def _lay_out_pool(self) -> None:
        """Turn the job's layout, if it has one, into rules."""
        if self.job.layout is not None:
            rules, engines = layout_rules(self.job.layout, self.inventory, self.findings, self.granted)
            self._engines = {
                name: Engines(processes=processes, server=part.server, kind=part.kind)
                for name, (part, processes) in engines.items()
            }
            self.job = replace(self.job, rules={**rules, **self.job.rules})

    def _place_components(self) -> None:
        """Place the component of every rule. Model-parallel placement overrides this."""
        first_of: dict[Path, str] = {}  # components of one rule share their placements
        for name, rule in self.job.rules.items():
            twin = first_of.setdefault(rule.path, name)
            if twin != name:
                if twin in self.components and self._afford(rule, self.components[twin].world_size):
                    self._keep(rule, self.components[twin].members)
            elif not self._is_broken(rule):
                self._place_rule(rule)

    def _place_rule(self, rule: ComponentRule) -> None:
        resources = self._resources(rule)
        if resources is None:
            return
        processes = spread(rule, resources, self.findings, self._left)
        if processes is None:
            return
        self._left -= len(processes)
        if resources.bare:
            return self._place(rule, [(resources.slots[held[0]], ()) for held in processes])
        try:
            self._place(rule, hold(resources, processes))
        except RoostError as error:
            self._blame(rule, error)

    def _place(self, rule: ComponentRule, assignments: Sequence[Assignment]) -> None:
        self._keep(rule, tuple(make_placements(assignments, isolate_accelerator=True)))

    def _keep(self, rule: ComponentRule, members: tuple[Placement, ...]) -> None:
        self.components[rule.name] = ComponentPlan(
            name=rule.name,
            rule=str(rule.spec),
            node_groups=rule.labels,
            members=members,
            engines=self._engines.get(rule.name),
        )

    def _is_broken(self, rule: ComponentRule) -> bool:
        """Whether an error is already reported for the rule or one of its node groups."""
        if self._broken is None:
            paths = [finding.path for finding in errors_in(self.findings)]
            self._broken = {path[:3] for path in paths}
            for path in paths:
                group = self.job.groups[int(path[2])] if path[1:2] == ("node_groups",) and path[2:] else None
                if group is not None:
                    self._broken.add((group.label.strip(),))
        return rule.path[:3] in self._broken or any((label,) in self._broken for label in rule.labels)

    def _afford(self, rule: ComponentRule, count: int) -> bool:
        self._left -= count
        if self._left < 0:
            self.findings.add(
                "RL106",
                f"{rule.name}: {counted(count, 'process')} more are too many",
                rule.path[:3],
                key=True,
                why="the components before it have as many as roost places on a cluster of this size",
                remedy="check for a digit too many",
            )
        return self._left >= 0

    def _resources(self, rule: ComponentRule) -> Resources | None:
        try:
            return self.inventory.resources(rule.labels)
        except RoostError as error:
            self._blame(rule, error, rule.path[:3])
            return None

    def _blame(self, rule: ComponentRule, error: RoostError, path: Path | None = None) -> None:
        """Report an error's findings with the component's name and its position in the file."""
        self.findings += [
            self.job.document.restated(problem, rule.name, path or rule.path, key=path is not None)
            for problem in error.findings
        ]


def _without_source_text(finding: Finding) -> Finding:
    """The finding without the text of its line, which may hold a secret: plans are saved and shown."""
    where = finding.where
    return finding if where is None else replace(finding, where=replace(where, excerpt=""))
