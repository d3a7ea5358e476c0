"""Checks the restart policies of a plan against its nodes and hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from roost.config.ranks import ranges
from roost.config.supervise import SECTION, RestartPolicy, policies_from
from roost.errors import Finding, error_for, errors_in
from roost.inventory.resources import ACCELERATOR, BARE_NODE
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan


def on_robots(component: ComponentPlan) -> bool:
    """Whether any process sits on hardware that is no accelerator. roost never restarts such a component by itself."""
    return any(place.kind not in (ACCELERATOR, BARE_NODE) for place in component.members)


def with_policies(plan: Plan, supervise: Any) -> Plan:
    """The plan with these policies, as a job file or Python gives them, in place of its own."""
    given = policies_from(supervise, plan.components)
    changed = replace(plan, supervise={**plan.supervise, **given})
    problems = [one for one in policy_problems(changed) if one.path[1] in given]
    if errors_in(problems):
        raise error_for(problems)
    replaced = [(SECTION, name) for name in given]
    kept = [finding for finding in plan.findings if finding.path[:2] not in replaced]
    return replace(changed, findings=(*kept, *problems))


def with_pool_policies(plan: Plan, policies: Mapping[str, RestartPolicy]) -> Plan:
    """The plan of a pool with the policies that its groups follow, and a warning about each of the others."""
    followed, findings = {}, []
    for name, policy in policies.items():
        if name not in plan.components:  # the mode of the layout runs none
            continue
        why, remedy = "", ""
        if policy.policy == "relocate":
            why, remedy = "the accelerators of a pool do not move", "write `policy: one_for_one`"
        if policy.policy != "fail" and plan.components[name].engines is not None:
            why = "an engine that starts again needs new ports and the current weights"
            remedy = "call recover() of the RolloutManager, which brings it both"
        if why:
            what = f"{name}: its restart policy is not carried out in a pool"
            findings.append(Finding(code="RW109", what=what, why=why, remedy=remedy, path=(SECTION, name)))
        else:
            followed[name] = policy
    return replace(plan, supervise=followed, findings=(*plan.findings, *findings))


def policy_problems(plan: Plan) -> Iterator[Finding]:
    """Spare nodes that do not exist or that the component uses, and policies of components on robots."""
    for name, policy in plan.supervise.items():
        component, path = plan.components[name], (SECTION, name)
        missing = [rank for rank in policy.spare_nodes if rank >= len(plan.inventory.nodes)]
        used = sorted(set(policy.spare_nodes).intersection(component.nodes))
        if missing:
            what = f"{name}: spare nodes {ranges(missing)} do not exist"
            why = f"the job has nodes 0-{len(plan.inventory.nodes) - 1}"
            remedy = "name nodes of the job, and count them in num_nodes"
            yield Finding(code="RI104", what=what, why=why, remedy=remedy, path=path)
        if used:
            what = f"{name}: its spare nodes {ranges(used)} are nodes it runs on"
            yield Finding(code="RC104", what=what, remedy="name nodes that it does not use", path=path)
        if policy.policy != "fail" and on_robots(component):
            what = f"{name}: its processes sit on robots and never restart by themselves"
            remedy = "restart them by hand when the robot is safe: restart_ranks(...)"
            yield Finding(
                code="RW109", what=what, why=f"its policy is {policy.policy}", remedy=remedy, path=path
            )
