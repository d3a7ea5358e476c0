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
from roost.engine.reservation.holders import free_by_ray, holders
from roost.inventory.inventory import Inventory
from roost.planning.preflight import Holder

_SETTLED = 2.0  # seconds after which Ray's view of free accelerators should be up to date
_POLL = 0.05


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
    ranks, deadline = range(len(live)), time.monotonic() + _SETTLED
    while True:
        named, free = holders(live, ranks, own), free_by_ray(live, ranks)
        gone = {rank: live[rank].facts.accelerators.count - free[rank] for rank in ranks}
        for holder in named:
            gone[holder.node] -= int(holder.count)
        # Ray's view is a moment old: it may not know yet that a group has just ended.
        if not any(gone.values()) or time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    others = [
        Holder(name="work outside placement groups", node=rank, count=count)
        for rank, count in gone.items()
        if count > 0
    ]
    return [*named, *others]
