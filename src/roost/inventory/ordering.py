"""The order of a live cluster's nodes: the same on every run, in whatever order they joined."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from roost.errors import ClusterError, Finding
from roost.inventory.nodes import Accelerators, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The facts about one node that joined the cluster."""

    node_id: str
    ip: str
    hostname: str
    accelerators: Accelerators
    device_names: tuple[str, ...] = ()  # the node's names of its accelerators, by number
    cpus: int | None = None
    is_master: bool = False
    declared_rank: str | None = None  # ROOST_NODE_RANK
    label: int | None = None  # roost numbers the nodes that it started itself
    search_paths: tuple[tuple[str, str], ...] = ()  # PYTHONPATH and the like, as set on the node

    def as_node(self, rank: int) -> Node:
        return Node(
            rank=rank, ip=self.ip, hostname=self.hostname, cpus=self.cpus, accelerators=self.accelerators
        )


def order_nodes(facts: Sequence[NodeInfo]) -> list[NodeInfo]:
    """Sort nodes by declared rank if all declare one, else the master first, then by address, host name and label."""
    declared = [fact for fact in facts if fact.declared_rank is not None]
    if not declared:
        return sorted(facts, key=_natural_key)
    ranks = {str(rank) for rank in range(len(facts))}
    if len(declared) == len(facts) and {fact.declared_rank for fact in facts} == ranks:
        return sorted(facts, key=lambda fact: int(fact.declared_rank or 0))
    listed = ", ".join(
        f"{fact.hostname or fact.ip} ({fact.ip}): {fact.declared_rank if fact.declared_rank is not None else 'unset'}"
        for fact in sorted(facts, key=_natural_key)
    )
    raise ClusterError(
        Finding(
            code="RE105",
            what=f"ROOST_NODE_RANK must be set on every node or on none, to 0..{len(facts) - 1}, each once",
            why=f"it is {listed}",
            remedy="correct it where Ray is started on each node, and start Ray there again",
        )
    )


def _natural_key(fact: NodeInfo) -> tuple[object, ...]:
    return (
        not fact.is_master,
        address_key(fact.ip),
        fact.hostname,
        fact.label if fact.label is not None else -1,
    )


def address_key(address: str) -> tuple[int, int, str]:
    """A sort key that compares addresses as numbers, IPv4 before IPv6 before anything else."""
    text = address.strip().strip("[]").split("%")[0]
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return (9, 0, text)
    return (parsed.version, int(parsed), "")
