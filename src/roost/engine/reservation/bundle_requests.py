"""Requests accelerators from Ray: one placement group with a bundle pinned to each node."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from roost.config.ranks import ranges
from roost.engine.connection.actors import NAMESPACE
from roost.engine.connection.cluster_watch import ask_head, cluster_is_gone
from roost.engine.connection.discovery import LiveNode
from roost.engine.reservation.holders import cpus_in_groups, free_cpus, holders, ray_resource
from roost.errors import Finding, ReservationError, counted
from roost.planning.preflight import runs, shortages

_POLL = 0.02
PATIENCE = 5.0  # seconds that a busy node has to free released accelerators
Part = Mapping[int, Collection[int]]  # the wanted devices of each node


def check_free(job: str, live: Sequence[LiveNode], part: Part, besides: PlacementGroup | None = None) -> None:
    """Raise at once if others hold the devices, and name the holders."""
    nodes = [node.facts.as_node(rank) for rank, node in enumerate(live)]
    findings = shortages(part, nodes, holders(live, part, job, besides))
    if findings:
        raise ReservationError(*findings)


def take(
    job: str, live: Sequence[LiveNode], part: Part, deadline: float, apart: bool = False
) -> PlacementGroup:
    """Take as many accelerators on each node as `part` has there; Ray chooses which.

    A node's accelerators are one bundle. With `apart`, each is a bundle of its own, with a CPU.
    """
    sizes = bundle_sizes({rank: len(devices) for rank, devices in part.items()}, apart)
    if apart:
        _check_cpus(live, part)
    ranks = [rank for rank, _ in sizes]
    request = partial(
        placement_group,
        [{ray_resource(live[rank]): size} | ({"CPU": 1} if apart else {}) for rank, size in sizes],
        # The node id as a label keeps our order; strategies such as PACK do not.
        bundle_label_selector=[{"ray.io/node-id": live[rank].node_id} for rank in ranks],
        name=f"{NAMESPACE}/{job}/{secrets.token_hex(4)}",  # Ray wants names to be unique
    )
    group = ask_head(request)
    try:
        _until_granted(group, job, live, part, deadline, apart)
    except BaseException:
        give_back([group])
        raise
    return group


def bundle_sizes(counts: Mapping[int, int], apart: bool) -> list[tuple[int, int]]:
    """The node and the number of accelerators of each bundle."""
    if apart:
        return [(rank, 1) for rank in sorted(counts) for _ in range(counts[rank])]
    return sorted(counts.items())


def _check_cpus(live: Sequence[LiveNode], part: Part) -> None:
    """Raise if a node has fewer CPUs than accelerators are wanted there."""
    findings = [
        _no_cpus(
            live,
            rank,
            len(devices),
            why=f"Ray counts {counted(live[rank].facts.cpus or 0, 'CPU')} there",
            remedy="start the node with more: `ray start --num-cpus=...`",
        )
        for rank, devices in part.items()
        if (live[rank].facts.cpus or 0) < len(devices)
    ]
    if findings:
        raise ReservationError(*findings)


def _check_free_cpus(live: Sequence[LiveNode], part: Part, besides: PlacementGroup) -> None:
    """Raise if other work holds the CPUs, and name its placement groups."""
    findings = []
    for rank, devices in part.items():
        free = free_cpus(live[rank])
        if free < len(devices):
            total = live[rank].facts.cpus or 0
            groups = cpus_in_groups(live[rank], besides)
            others = total - free - sum(groups.values())
            held = [f"{name} holds {count:g}" for name, count in groups.items()]
            held += [f"tasks and actors hold {others:g}"] * (others > 0)
            findings.append(
                _no_cpus(
                    live,
                    rank,
                    len(devices),
                    why=f"{free:g} of {counted(total, 'CPU')} are free there: {', '.join(held[:6])}",
                    remedy="end what holds them, or start the node with more: `ray start --num-cpus=...`",
                )
            )
    if findings:
        raise ReservationError(*findings)


def _no_cpus(live: Sequence[LiveNode], rank: int, count: int, why: str, remedy: str) -> Finding:
    what = f"{live[rank].facts.as_node(rank)}: {counted(count, 'accelerator')} with a CPU each cannot be reserved"
    return Finding(code="RE107", what=what, why=why, remedy=remedy)


def take_exactly(
    job: str,
    live: Sequence[LiveNode],
    part: Part,
    ours: Mapping[int, frozenset[int]],
    deadline: float,
    apart: bool = False,
) -> PlacementGroup:
    """Take exactly these devices, unless programs outside roost hold some of them.

    Ray grants the lowest free numbers of a node. So take all free devices up to the last wanted one, in runs;
    give the wanted runs back and request them again as one bundle; then give the unwanted runs back.
    """
    pieces = _pieces(job, live, part, ours)
    fillers: list[PlacementGroup] = []
    passing: list[PlacementGroup] = []
    try:
        for step in range(max(len(cuts) for cuts in pieces.values()) - 1):
            for is_wanted, keep in ((True, passing), (False, fillers)):
                some = {
                    rank: cuts[step][1]
                    for rank, cuts in pieces.items()
                    if len(cuts) > step + 1 and cuts[step][0] == is_wanted
                }
                if some:
                    keep.append(take(job, live, some, deadline))
        give_back(passing)
        passing.clear()
        return take(job, live, part, deadline, apart)
    except ReservationError:
        if not fillers and not passing:
            raise
    finally:
        give_back([*fillers, *passing])
    # Tasks outside placement groups hold devices that Ray does not number: take what Ray grants.
    return take(job, live, part, deadline, apart)


def _pieces(
    job: str, live: Sequence[LiveNode], part: Part, ours: Mapping[int, frozenset[int]]
) -> dict[int, list[tuple[bool, tuple[int, ...]]]]:
    """The runs of devices to take on each node, in order: wanted ones, and free ones with lower numbers."""
    found = holders(live, part, job)
    pieces = {}
    for rank, devices in part.items():
        there = [holder for holder in found if holder.node == rank]
        wanted, total = set(devices), live[rank].facts.accelerators.count
        free = set(range(total)) - ours[rank].union(*[holder.devices or () for holder in there]) | wanted
        spare = int(total - sum(holder.count for holder in there)) - len(wanted)
        pieces[rank] = runs(wanted, free, spare)
    return pieces


def _until_granted(
    group: PlacementGroup, job: str, live: Sequence[LiveNode], part: Part, deadline: float, apart: bool
) -> None:
    """Wait for the placement group; raise as soon as Ray cannot grant it."""
    patience = None

    def state_unless_granted() -> str | None:
        return None if group.wait(_POLL) else str(placement_group_table(group)["stats"]["scheduling_state"])

    while state := ask_head(state_unless_granted):
        if state not in ("INFEASIBLE", "NO_RESOURCES") and time.monotonic() <= deadline:
            continue
        # Do not count the group itself: Ray may have granted it just now.
        check_free(job, live, part, besides=group)
        patience = patience or time.monotonic() + PATIENCE
        if state == "NO_RESOURCES" and time.monotonic() < min(deadline, patience):
            continue  # Ray may still be freeing accelerators of work that just ended
        if apart:
            _check_free_cpus(live, part, besides=group)
        raise ReservationError(
            *[
                Finding(
                    code="RE107",
                    what=f"{live[rank].facts.as_node(rank)}: accelerators {ranges(devices)} cannot be reserved",
                    why="Ray does not grant them: tasks or actors outside any placement group hold accelerators there",
                    remedy="`ray status -v` shows usage; end what holds them",
                )
                for rank, devices in part.items()
            ]
        )


def give_back(groups: Iterable[PlacementGroup]) -> None:
    given = list(groups)
    if given and ray.is_initialized() and not cluster_is_gone():
        ask_head(lambda: [remove_placement_group(group) for group in given])
