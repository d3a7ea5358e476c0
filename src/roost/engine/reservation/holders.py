"""Finds the holders of a cluster's accelerators in Ray's tables, and asks roost's jobs for the exact numbers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group_table

from roost.engine.connection.actors import NAMESPACE, find_actor
from roost.engine.connection.cluster_watch import ask_head
from roost.engine.connection.discovery import LiveNode
from roost.engine.job.managers import NodeManager
from roost.inventory.accelerators import accelerator_kind
from roost.planning.preflight import Holder

SETTLING = 2.0  # seconds after which Ray's view of free accelerators should be up to date
POLL = 0.02
_JOB = "job "


def holders(
    live: Sequence[LiveNode], nodes: Collection[int], own: str, besides: PlacementGroup | None = None
) -> list[Holder]:
    """The holders of accelerators on these nodes. Leaves out the numbers of the job `own`: the caller knows them."""
    ranks = {live[rank].node_id: rank for rank in nodes}
    counts: dict[tuple[str, int], float] = {}
    for name, node_id, bundle in _granted_bundles(besides):
        if node_id in ranks and (count := bundle.get(ray_resource(live[ranks[node_id]]), 0)):
            key = (name, ranks[node_id])
            counts[key] = counts.get(key, 0) + count
    devices = _devices_of({name for name, _ in counts if name.startswith(_JOB)} - {_job_text(own)})
    found = []
    for (name, rank), count in counts.items():
        told = devices.get(name, {}).get(live[rank].node_id)
        known = None if told is None else device_numbers(live[rank], told)
        found.append(Holder(name=name, node=rank, count=count, devices=known))
    return found


def settled_holders(
    live: Sequence[LiveNode], nodes: Collection[int], own: str, deadline: float
) -> tuple[list[Holder], dict[int, int]]:
    """The holders, and how many accelerators each node lacks beside theirs.

    Ray's view of free accelerators is a moment old: asks until none is lacking, or until the deadline.
    """
    while True:
        found, free = holders(live, nodes, own), free_by_ray(live, nodes)
        lacking = {rank: live[rank].facts.accelerators.count - free[rank] for rank in nodes}
        for holder in found:
            lacking[holder.node] -= int(holder.count)
        if not any(lacking.values()) or time.monotonic() > deadline:
            return found, lacking
        time.sleep(POLL)


def cpus_in_groups(node: LiveNode, besides: PlacementGroup) -> dict[str, float]:
    """The CPUs of the node that placement groups hold, by the holder's name."""
    counts: dict[str, float] = {}
    for name, node_id, bundle in _granted_bundles(besides):
        if node_id == node.node_id and (count := bundle.get("CPU", 0)):
            counts[name] = counts.get(name, 0) + count
    return counts


def _granted_bundles(besides: PlacementGroup | None) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """The holder, the node and the resources of every granted bundle, except those of the group `besides`."""
    for group_id, group in ask_head(placement_group_table).items():
        if group["state"] in ("REMOVED", "PENDING") or (besides and group_id == besides.id.hex()):
            continue
        for index, node_id in group["bundles_to_node_id"].items():
            yield _holder_name(group["name"]), node_id, group["bundles"][index]


def free_cpus(node: LiveNode) -> float:
    """The CPUs that Ray would still grant on the node, in its view of a moment ago."""
    return _available().get(node.node_id, {}).get("CPU", 0)


def free_by_ray(live: Sequence[LiveNode], nodes: Collection[int]) -> dict[int, int]:
    """How many whole accelerators Ray would still grant on each node. This counts tasks and actors too.

    Ray's view is a moment old.
    """
    available = _available()
    return {
        rank: int(available.get(live[rank].node_id, {}).get(ray_resource(live[rank]), 0)) for rank in nodes
    }


def _available() -> Mapping[str, Mapping[str, float]]:
    """Free resources by node. Ray has no public call for this: `ray.available_resources` adds all nodes up."""
    found: Mapping[str, Mapping[str, float]] = ask_head(available_resources_per_node)
    return found


def ray_resource(node: LiveNode) -> str:
    """Ray's resource name of this node's accelerators."""
    held = node.facts.accelerators
    return accelerator_kind(held.type).ray_resource if held.count else "GPU"


def device_numbers(node: LiveNode, granted: Iterable[str]) -> frozenset[int]:
    names = node.facts.device_names
    return frozenset(names.index(name) for name in granted if name in names)


def standing() -> frozenset[str]:
    """The ids of the placement groups that hold resources."""
    table = ask_head(placement_group_table)
    return frozenset(group_id for group_id, group in table.items() if group["state"] == "CREATED")


def _devices_of(jobs: set[str]) -> Mapping[str, Mapping[str, list[str]]]:
    """The names of the accelerators these jobs hold, by node. Leaves out jobs that do not answer."""
    asked = {}
    for name in jobs:
        try:
            manager = find_actor(NodeManager.NAME, name.split("'")[1])
        except ValueError:  # the job is ending
            continue
        asked[name] = manager.get_holdings.remote()
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=2) if asked else ([], [])
    told: dict[str, dict[str, list[str]]] = {}
    there = standing() if ready else frozenset()
    for name, ref in asked.items():
        if ref in ready:
            try:
                holdings = ray.get(ref)
            except ray.exceptions.RayError:
                continue
            told[name] = {
                node_id: [one.name for one in held if one.bundle[0].id.hex() in there]
                for node_id, held in holdings.items()
            }
    return told


def _job_text(job: str) -> str:
    return f"{_JOB}'{job}'"


def _holder_name(group_name: str) -> str:
    parts = group_name.split("/")
    if len(parts) == 3 and parts[0] == NAMESPACE:
        return _job_text(parts[1])
    return f"placement group {group_name!r}" if group_name else "an unnamed placement group"
