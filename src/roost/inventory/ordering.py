"""The order of a live cluster's nodes: the same on every run, in whatever order they joined."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from roost.errors import ClusterError
from roost.inventory.nodes import Accelerators, Node

_RANKS = re.compile(r"(0|[1-9]\d{0,6})(?:-([1-9]\d{0,6}))?", re.ASCII)
_NO_ADDRESS = 9  # sorts after the versions of addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The facts about one node that joined the cluster."""

    node_id: str
    ip: str  # or a host name, where Ray was started with one
    hostname: str
    accelerators: Accelerators
    device_names: tuple[str, ...] = ()  # the node's names of its accelerators, by number
    cpus: int | None = None
    is_master: bool = False
    declared_rank: str | None = None  # ROOST_NODE_RANK: its rank, or the ranks of all nodes like it
    label: int | None = None  # roost numbers the nodes that it started itself
    search_paths: tuple[tuple[str, str], ...] = ()  # PYTHONPATH and the like, as set on the node

    def as_node(self, rank: int) -> Node:
        return Node(
            rank=rank, ip=self.ip, hostname=self.hostname, cpus=self.cpus, accelerators=self.accelerators
        )


# The addresses of host names; a name that cannot be resolved is missing.
Resolve = Callable[[Collection[str]], Mapping[str, str]]


def order_nodes(facts: Sequence[NodeInfo], resolve: Resolve = lambda names: {}) -> list[NodeInfo]:
    """Sort nodes by declared rank if all declare one, else the master first, then by address, host name and label.

    Nodes that declare the same several ranks, such as `1-3`, take them in the order of their addresses. `resolve` finds
    the address of a node that Ray knows by a host name; without an address, the name counts.
    """
    declared: dict[str | None, list[NodeInfo]] = {}
    for fact in facts:
        declared.setdefault(fact.declared_rank, []).append(fact)
    if list(declared) in ([], [None]):
        return _by_address(facts, resolve)
    ranks = {text: _ranks_in(text, len(facts)) for text in declared}
    fits = all(len(ranks[text]) == len(nodes) for text, nodes in declared.items())
    if fits and sorted(rank for some in ranks.values() for rank in some) == list(range(len(facts))):
        placed = {
            rank: node
            for text, nodes in declared.items()
            for rank, node in zip(ranks[text], _by_address(nodes, resolve), strict=True)
        }
        return [placed[rank] for rank in range(len(facts))]
    listed = ", ".join(
        f"{fact.hostname or fact.ip} ({fact.ip}): {fact.declared_rank if fact.declared_rank is not None else 'unset'}"
        for fact in sorted(facts, key=lambda fact: _natural_key(fact, {}))
    )
    raise ClusterError(
        code="RE105",
        what=f"ROOST_NODE_RANK must be set on every node or on none, to 0..{len(facts) - 1}, each once",
        why=f"it is {listed}",
        remedy="correct it where Ray is started on each node, and start Ray there again",
    )


def _by_address(facts: Sequence[NodeInfo], resolve: Resolve) -> list[NodeInfo]:
    if len(facts) == 1:
        return list(facts)
    names = {fact.ip for fact in facts if address_key(fact.ip)[0] == _NO_ADDRESS}
    addresses = resolve(sorted(names)) if names else {}
    return sorted(facts, key=lambda fact: _natural_key(fact, addresses))


def _ranks_in(declared: str | None, total: int) -> list[int]:
    """The ranks of `2`, `1-3` or `0,2-3`, ascending; none if the text has another form or goes past the last node."""
    found: list[int] = []
    for piece in (declared or "").split(","):
        match = _RANKS.fullmatch(piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, total)
        if last >= total or first > last or (found and first <= found[-1]):
            return []
        found += range(first, last + 1)
    return found


def _natural_key(fact: NodeInfo, addresses: Mapping[str, str]) -> tuple[object, ...]:
    return (
        not fact.is_master,
        address_key(addresses.get(fact.ip, fact.ip)),
        fact.hostname,
        fact.label if fact.label is not None else -1,
    )


def address_key(address: str) -> tuple[int, int, str]:
    """A sort key that compares addresses as numbers, IPv4 before IPv6 before anything else."""
    text = address.strip().strip("[]").split("%")[0]
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return (_NO_ADDRESS, 0, text)
    return (parsed.version, int(parsed), "")
