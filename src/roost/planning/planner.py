"""From a job and an inventory to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roost.errors import Finding
from roost.placement.component import ComponentPlacement
from roost.planning.checks import check
from roost.planning.plan import ComponentPlan, Plan


def plan(
    job: Any,
    inventory: Any,
    *,
    overrides: Sequence[str] = (),
    placement: type[ComponentPlacement] = ComponentPlacement,
) -> Plan:
    """Place every component of a job. Everything that is wrong is raised together.

    `job` is a path, a dict or a `DictConfig`; its node groups are applied to the inventory. Pass
    `placement=ModelParallelComponentPlacement` for jobs whose program uses that class.
    """
    placed = placement(job, inventory, overrides)
    inventory = placed.inventory
    groups = {label: group.without_secrets() for label, group in inventory.groups.items()}
    components = {
        name: ComponentPlan(
            name=name,
            rule=str(placed.rules[name].spec),
            node_groups=placed.rules[name].labels,
            members=placed.get_placements(name),
        )
        for name in placed.components
    }
    planned = Plan(inventory=replace(inventory, groups=groups), components=components)
    findings = tuple(map(_without_source_text, [*placed.findings, *check(planned)]))
    return replace(planned, findings=findings)


def _without_source_text(finding: Finding) -> Finding:
    """A plan is saved and shown elsewhere; the line a finding came from stays in its file."""
    where = finding.where
    return finding if where is None else replace(finding, where=replace(where, excerpt=""))
