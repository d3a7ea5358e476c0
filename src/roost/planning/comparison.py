"""Compares a plan's cluster with another one: the shape must be the same, addresses and hosts may differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roost.errors import Finding
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.planning.plan import Plan

MOST = 20  # nodes in one refusal


def shape_differences(plan: Plan, cluster: Inventory) -> list[Finding]:
    """The nodes of the plan that differ from this cluster's, and its node groups. The cluster may have more nodes."""
    there, findings = cluster.nodes, []
    different = [node for node in plan.inventory.nodes if not _fits(node, there)]
    for node in different[:MOST]:
        has = _in_words(there[node.rank]) if node.rank < len(there) else "no such node"
        what = f"node {node.rank}: the plan was made for {_in_words(node)}, this cluster has {has}"
        remedy = "plan the job for this cluster, or launch it on one of the plan's shape"
        findings.append(Finding(code="RE121", what=what, remedy=remedy))
    if len(different) > MOST:
        findings.append(Finding(code="RE121", what=f"{len(different) - MOST:,} more nodes differ"))
    for label, group in plan.inventory.groups.items():
        known = cluster.groups.get(label)
        if known is not None and not known.places_like(group):
            findings.append(
                Finding(
                    code="RI102",
                    what=f"the cluster knows another node group {label!r}",
                    why="it was started with other node groups, or a run that has not ended brought its own",
                    remedy="start it with the job's section: Cluster(cluster_cfg=cfg.cluster), or shut that run down first",
                )
            )
    return findings


def on_nodes(plan: Plan, nodes: Sequence[Node]) -> Plan:
    """The plan with the hosts and addresses of its cluster, which must have the plan's shape."""
    used = tuple(nodes[: len(plan.inventory.nodes)])
    return replace(plan, inventory=replace(plan.inventory, nodes=used))


def _fits(node: Node, there: tuple[Node, ...]) -> bool:
    return node.rank < len(there) and _shape(node) == _shape(there[node.rank])


def _shape(node: Node) -> tuple[int, str]:
    held = node.accelerators
    return held.count, held.type if held.count else ""


def _in_words(node: Node) -> str:
    held = node.accelerators
    return f"{held.count} x {held.type}" if held.count else "no accelerators"
