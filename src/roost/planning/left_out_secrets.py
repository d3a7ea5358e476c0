"""Adds the secrets that a saved plan left out when it is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from roost.errors import ConfigurationError, Finding
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.planning.plan import Plan


def with_secrets(plan: Plan, groups: Mapping[str, NodeGroup], environ: Mapping[str, str]) -> Plan:
    """The plan with every variable's value: from these groups of its job, else from the environment.

    An error names the variables that neither has.
    """
    missing: dict[str, list[str]] = {}
    found = {}
    for label, group in plan.inventory.groups.items():
        environments = []
        for place, environment in enumerate(group.environments):
            filled = _filled(environment, _counterpart(groups.get(label), place), environ)
            for name, value in filled.env_vars:
                if value is None:
                    missing.setdefault(name, []).append(label)
            environments.append(filled)
        found[label] = replace(group, environments=tuple(environments))
    if missing:
        raise ConfigurationError(
            *[
                Finding(
                    code="RS103",
                    what=f"the value of {name} is missing, for node group {', '.join(map(repr, labels))}",
                    why="a saved plan leaves out values that look secret",
                    remedy=f"set {name} in the environment of the launch, or launch with the job file",
                )
                for name, labels in missing.items()
            ]
        )
    return replace(plan, inventory=replace(plan.inventory, groups=found))


def _counterpart(group: NodeGroup | None, place: int) -> Mapping[str, str | None]:
    if group is None or place >= len(group.environments):
        return {}
    return dict(group.environments[place].env_vars)


def _filled(
    environment: NodeEnvironment, job: Mapping[str, str | None], environ: Mapping[str, str]
) -> NodeEnvironment:
    return replace(
        environment,
        env_vars=tuple(
            (name, (job.get(name) or environ.get(name)) if value is None else value)
            for name, value in environment.env_vars
        ),
    )
