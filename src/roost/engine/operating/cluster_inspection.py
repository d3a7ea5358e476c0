"""Asks every node of a running cluster for the facts that `roost doctor` judges."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray

from roost.engine.connection.discovery import HEAD_RESOURCE, wait_for_nodes
from roost.engine.connection.embedded import TYPE_LABEL
from roost.engine.connection.ray_connection import connect, network_warning
from roost.engine.health.machine_facts import NodeFacts
from roost.engine.job.agents import start_agents
from roost.errors import Finding, first_line

CLOCK_QUESTIONS, CLOCK_WITHIN = 3, 2.0  # to each node, and seconds for each answer


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedCluster:
    address: str
    nodes: tuple[NodeFacts, ...]
    findings: tuple[Finding, ...]  # found while asking the nodes


def inspect_cluster(address: str | None, timeout: float = 60.0) -> InspectedCluster:
    """Inspect all nodes at once. Raises if no Ray runs; starts none."""
    connection = connect(address, None, may_start=False, warn=False)
    try:
        nodes = wait_for_nodes(None, connection.address, timeout)
        agents = start_agents(nodes, f"doctor-{secrets.token_hex(4)}")
        try:
            found, findings = _asked(nodes, agents, timeout)
        finally:
            for agent in agents.values():
                ray.kill(agent)
        network = network_warning(connection.address)
        return InspectedCluster(
            address=connection.address,
            nodes=tuple(found),
            findings=(*([network] if network else []), *findings),
        )
    finally:
        connection.close()


def _asked(
    nodes: list[Mapping[str, Any]], agents: Mapping[str, Any], timeout: float
) -> tuple[list[NodeFacts], list[Finding]]:
    """Ask all nodes at once, so that a silent one takes no time from the others."""
    found, findings = [], []
    asked = {node["NodeID"]: agents[node["NodeID"]].inspect.remote() for node in nodes}
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout)
    for node in sorted(
        nodes, key=lambda one: (HEAD_RESOURCE not in one["Resources"], one["NodeManagerAddress"])
    ):
        host = node["NodeManagerAddress"]
        try:
            told = ray.get(asked[node["NodeID"]], timeout=0)
        except ray.exceptions.RayError as error:
            findings.append(
                Finding(
                    code="RE104",
                    what=f"{host} cannot be asked",
                    why=first_line(error),
                    remedy="is roost installed there, in the same version and Python as here, and the node not overloaded?",
                )
            )
            continue
        clock_error, doubt = _clock(agents[node["NodeID"]])
        found.append(
            NodeFacts(
                machine=replace(told, host=host),
                node_id=node["NodeID"],
                resources=dict(node["Resources"]),
                is_virtual=TYPE_LABEL in (node.get("Labels") or {}),
                is_head=HEAD_RESOURCE in node["Resources"],
                clock_error=clock_error,
                clock_doubt=doubt,
            )
        )
    return found, findings


def _clock(agent: Any) -> tuple[float, float]:
    """The node's clock minus this machine's, and the possible error of that, from the quickest of several answers."""
    best = (0.0, float("inf"))
    for _ in range(CLOCK_QUESTIONS):
        before = time.time()
        try:
            there = ray.get(agent.clock.remote(), timeout=CLOCK_WITHIN)
        except ray.exceptions.RayError:
            break
        after = time.time()
        best = min(best, (there - (before + after) / 2, (after - before) / 2), key=lambda one: one[1])
    return best
