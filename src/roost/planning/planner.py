"""From a job and an inventory to a plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from roost.errors import Finding, error_for
from roost.placement.component import ComponentPlacement
from roost.planning.checks import check
from roost.planning.plan import ComponentPlan, Plan
from roost.planning.shares import share_problems


def plan(
    job: Any,
    inventory: Any,
    *,
    overrides: Sequence[str] = (),
    placement: type[ComponentPlacement] = ComponentPlacement,
) -> Plan:
    """Place every component of a job. Everything that is wrong is raised together.

    `job` is a path, a dict, a `DictConfig` or a `Layout`; its node groups are applied to the inventory. Pass
    `placement=ModelParallelComponentPlacement` for jobs whose program uses that class.
    """
    with _collector_paused():
        return _planned(placement(job, inventory, overrides))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Records of a plan form no cycles; looking for some among a million of them is most of the work."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _planned(placed: ComponentPlacement) -> Plan:
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
    layout = placed.job.layout
    shares = {name: share for name, share in placed.job.shares.items() if name in components}
    planned = Plan(inventory=replace(inventory, groups=groups), components=components, shares=shares)
    overdrawn = [
        replace(problem, where=placed.job.document.key_span(problem.path))
        for problem in share_problems(planned)
    ]
    if overdrawn:
        raise error_for([*placed.findings, *overdrawn])
    findings = tuple(
        map(_without_source_text, [*placed.findings, *check(planned, layout.components if layout else ())])
    )
    return replace(planned, findings=findings)


def _without_source_text(finding: Finding) -> Finding:
    """A plan is saved and shown elsewhere; the line a finding came from stays in its file."""
    where = finding.where
    return finding if where is None else replace(finding, where=replace(where, excerpt=""))
