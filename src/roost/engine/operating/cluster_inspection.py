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

CLOCK_QUESTIONS = 3  # to each node


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
            found, findings = _asked(nodes, agents, time.monotonic() + timeout)
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
    nodes: list[Mapping[str, Any]], agents: Mapping[str, Any], deadline: float
) -> tuple[list[NodeFacts], list[Finding]]:
    ready_within = max(0.0, deadline - time.monotonic())
    ray.wait(
        [agent.__ray_ready__.remote() for agent in agents.values()],
        num_returns=len(agents),
        timeout=ready_within,
    )
    found, findings = [], []
    asked = {node["NodeID"]: agents[node["NodeID"]].inspect.remote() for node in nodes}
    clocks = {node["NodeID"]: _clock(agents[node["NodeID"]], deadline) for node in nodes}
    for node in sorted(
        nodes, key=lambda one: (HEAD_RESOURCE not in one["Resources"], one["NodeManagerAddress"])
    ):
        host = node["NodeManagerAddress"]
        try:
            told = ray.get(asked[node["NodeID"]], timeout=max(0.1, deadline - time.monotonic()))
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
        clock_error, doubt = clocks[node["NodeID"]]
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


def _clock(agent: Any, deadline: float) -> tuple[float, float]:
    """The node's clock minus this machine's, and the possible error of that, from the quickest of several answers."""
    best = (0.0, float("inf"))
    for _ in range(CLOCK_QUESTIONS):
        before = time.time()
        try:
            there = ray.get(agent.clock.remote(), timeout=max(0.1, deadline - time.monotonic()))
        except ray.exceptions.RayError:
            break
        after = time.time()
        best = min(best, (there - (before + after) / 2, (after - before) / 2), key=lambda one: one[1])
    return best
