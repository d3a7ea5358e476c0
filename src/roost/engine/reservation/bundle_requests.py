"""Getting accelerators from Ray: one placement group with a bundle on each node, pinned there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from roost.engine.connection.discovery import LiveNode
from roost.engine.connection.ray_connection import NAMESPACE
from roost.engine.reservation.holders import holders, ray_resource
from roost.errors import Finding, ReservationError
from roost.planning.checks import ranges
from roost.planning.preflight import runs, shortages

_POLL = 0.02
PATIENCE = 5.0  # seconds in which a busy node should have given back what it was told to
Part = Mapping[int, Collection[int]]  # of each node, the devices that are wanted


def check_free(job: str, live: Sequence[LiveNode], part: Part, besides: PlacementGroup | None = None) -> None:
    """Refuse at once what cannot be had, saying who holds it."""
    nodes = [node.facts.as_node(rank) for rank, node in enumerate(live)]
    findings = shortages(part, nodes, holders(live, part, job, besides))
    if findings:
        raise ReservationError(*findings)


def take(job: str, live: Sequence[LiveNode], part: Part, deadline: float) -> PlacementGroup:
    """As many accelerators on each node as are wanted there; Ray chooses which."""
    ranks = sorted(part)
    group = placement_group(
        [{ray_resource(live[rank]): len(part[rank])} for rank in ranks],
        # The node id as a label keeps our order; strategies such as PACK do not.
        bundle_label_selector=[{"ray.io/node-id": live[rank].node_id} for rank in ranks],
        name=f"{NAMESPACE}/{job}/{secrets.token_hex(4)}",  # Ray wants names to be unique
    )
    try:
        _until_granted(group, job, live, part, deadline)
    except BaseException:
        give_back([group])
        raise
    return group


def take_exactly(
    job: str, live: Sequence[LiveNode], part: Part, ours: Mapping[int, frozenset[int]], deadline: float
) -> PlacementGroup:
    """The same, of exactly these devices, unless something outside roost stands in the way.

    Ray grants a node's lowest free numbers. So all free ones up to the last wanted are taken in runs, then
    the wanted runs are let go and asked for again as one bundle, and then the unwanted ones are given back.
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
        return take(job, live, part, deadline)
    except ReservationError:
        if not fillers and not passing:
            raise
    finally:
        give_back([*fillers, *passing])
    # Tasks outside any placement group hold some, nobody knows which: then whatever there is.
    return take(job, live, part, deadline)


def _pieces(
    job: str, live: Sequence[LiveNode], part: Part, ours: Mapping[int, frozenset[int]]
) -> dict[int, list[tuple[bool, tuple[int, ...]]]]:
    """What to take on each node, in turn: the wanted devices, and those that stand before them."""
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
    group: PlacementGroup, job: str, live: Sequence[LiveNode], part: Part, deadline: float
) -> None:
    """Wait for a bundle, but not for one that cannot come."""
    patience = None
    while not group.wait(_POLL):
        state = placement_group_table(group)["stats"]["scheduling_state"]
        if state not in ("INFEASIBLE", "NO_RESOURCES") and time.monotonic() <= deadline:
            continue
        # Not counting the group itself, which may have come just now.
        check_free(job, live, part, besides=group)
        patience = patience or time.monotonic() + PATIENCE
        if state == "NO_RESOURCES" and time.monotonic() < min(deadline, patience):
            continue  # something just ended and is being given back
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
    for group in groups:
        if ray.is_initialized():
            remove_placement_group(group)
