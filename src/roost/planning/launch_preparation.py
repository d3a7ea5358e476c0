"""Prepares a plan for a launch: compares its cluster with the one at hand, and adds the secrets that a saved plan lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from roost.errors import ConfigurationError, Finding
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.planning.plan import Plan

MOST = 20  # nodes in one refusal
_HIDDEN = "***"  # stands in a saved path where a secret was
_INTERPRETER = "python_interpreter_path"  # of the job alone: no variable of the environment has it


def shape_differences(plan: Plan, cluster: Inventory) -> list[Finding]:
    """The nodes of the plan that differ from this cluster's, and its node groups.

    The cluster may have more nodes, and other addresses and hosts.
    """
    findings, planned, there = [], plan.inventory.nodes, cluster.nodes
    different = [node.rank for node in planned if _shape(planned, node.rank) != _shape(there, node.rank)]
    for rank in different[:MOST]:
        what = f"node {rank}: the plan was made for {_shape(planned, rank)}, this cluster has {_shape(there, rank)}"
        remedy = "plan the job for this cluster, or launch it on one of the plan's shape"
        findings.append(Finding(code="RE121", what=what, remedy=remedy))
    if len(different) > MOST:
        findings.append(Finding(code="RE121", what=f"{len(different) - MOST:,} more nodes differ"))
    for label, group in plan.inventory.groups.items():
        known = cluster.groups.get(label)
        if known is not None and not known.places_like(group):
            what = f"the cluster knows another node group {label!r}"
            why = "it was started with other node groups, or a run that has not ended brought its own"
            remedy = "start it with the job's section: Cluster(cluster_cfg=cfg.cluster), or shut that run down first"
            findings.append(Finding(code="RI102", what=what, why=why, remedy=remedy))
    return findings


def on_nodes(plan: Plan, nodes: Sequence[Node]) -> Plan:
    """The plan with the hosts and addresses of its cluster, which must have the plan's shape."""
    used = tuple(nodes[: len(plan.inventory.nodes)])
    return replace(plan, inventory=replace(plan.inventory, nodes=used))


def _shape(nodes: Sequence[Node], rank: int) -> str:
    if rank >= len(nodes):
        return "no such node"
    held = nodes[rank].accelerators
    return f"{held.count} x {held.type}" if held.count else "no accelerators"


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
            names.add(_INTERPRETER)
        for name in sorted(names):
            missing.setdefault(name, []).append(label)
        found[label] = replace(group, environments=tuple(filled))
    if missing:
        raise ConfigurationError(*[_missing(name, labels) for name, labels in missing.items()])
    return replace(plan, inventory=replace(plan.inventory, groups=found))


def _missing(name: str, labels: Sequence[str]) -> Finding:
    what = f"the value of {name} is missing, for node group {', '.join(map(repr, labels))}"
    why, remedy = "a saved plan leaves out values that look secret", "launch with the job file"
    if name != _INTERPRETER:
        remedy = f"set {name} in the environment of the launch, or {remedy}"
    return Finding(code="RS103", what=what, why=why, remedy=remedy)


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
