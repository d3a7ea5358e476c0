"""Adds, at a launch, the secrets that a saved plan leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from roost.errors import ConfigurationError, Finding
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.planning.plan import Plan

_HIDDEN = "***"  # stands in a saved path where a secret was


def with_secrets(plan: Plan, groups: Mapping[str, NodeGroup], environ: Mapping[str, str]) -> Plan:
    """The plan with every variable's value: from these groups of its job, else from the environment.

    An error names the variables that neither of them has.
    """
    missing: dict[str, list[str]] = {}
    found = {}
    for label, group in plan.inventory.groups.items():
        filled = [_filled(one, groups.get(label), environ) for one in group.environments]
        names = {name for one in filled for name, value in one.env_vars if value is None}
        if any(_HIDDEN in (one.python_interpreter_path or "") for one in filled):
            names.add("python_interpreter_path")
        for name in sorted(names):
            missing.setdefault(name, []).append(label)
        found[label] = replace(group, environments=tuple(filled))
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


def _filled(
    environment: NodeEnvironment, job: NodeGroup | None, environ: Mapping[str, str]
) -> NodeEnvironment:
    """The settings of some nodes, with values from the job's settings of these nodes, or from the environment."""
    same = (
        [one for one in job.environments if set(one.node_ranks) & set(environment.node_ranks)] if job else []
    )
    known = {name: value for one in same for name, value in one.env_vars if value}
    interpreter = environment.python_interpreter_path
    if interpreter and _HIDDEN in interpreter:
        interpreter = next(
            (one.python_interpreter_path for one in same if one.python_interpreter_path), interpreter
        )
    return replace(
        environment,
        env_vars=tuple(
            (name, (known.get(name) or environ.get(name) or None) if value is None else value)
            for name, value in environment.env_vars
        ),
        python_interpreter_path=interpreter,
    )
