"""A snapshot of a running cluster: its nodes, and the holders of their accelerators. Starts no job."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import ray

from roost.engine.connection.discovery import LiveNode, examine, wait_for_nodes
from roost.engine.connection.ray_connection import connect
from roost.engine.job.agents import start_agents
from roost.engine.reservation.holders import SETTLING, settled_holders
from roost.inventory.inventory import Inventory
from roost.planning.preflight import Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    inventory: Inventory
    holders: tuple[Holder, ...]


def take_snapshot(address: str | None = None, timeout: float = 60.0) -> ClusterSnapshot:
    """The nodes present now, in a job's order, and the holders of their accelerators. Raises if no Ray runs."""
    name = f"snapshot-{secrets.token_hex(4)}"
    connection = connect(address, None, may_start=False)
    try:
        nodes = wait_for_nodes(None, connection.address, timeout)
        agents = start_agents(nodes, name)
        try:
            live = examine(nodes, agents, timeout)
            inventory = Inventory(nodes=tuple(node.facts.as_node(rank) for rank, node in enumerate(live)))
            return ClusterSnapshot(inventory=inventory, holders=tuple(_holders(live, name)))
        finally:
            for agent in agents.values():
                ray.kill(agent)
    finally:
        connection.close()


def _holders(live: Sequence[LiveNode], own: str) -> list[Holder]:
    """Placement groups by name, and tasks and actors outside them: those show only as missing accelerators."""
    named, lacking = settled_holders(live, range(len(live)), own, time.monotonic() + SETTLING)
    others = [
        Holder(name="work outside placement groups", node=rank, count=count)
        for rank, count in lacking.items()
        if count > 0
    ]
    return [*named, *others]
