"""Holding accelerators: the only place that takes them from Ray."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from roost.engine.connection import NAMESPACE, answer, job_namespace
from roost.engine.discovery import LiveNode
from roost.engine.holders import device_numbers, free_by_ray, holders, ray_resource, standing
from roost.engine.managers import NodeManager
from roost.engine.measuring import Bundle, measure
from roost.engine.turns import reserving
from roost.errors import Finding, ReservationError, render
from roost.planning.checks import ranges
from roost.planning.preflight import first_free, match, runs, shortages

log = logging.getLogger("roost")
_POLL = 0.02
SETTLING = 2.0  # seconds in which Ray's view of what is free should have caught up
PATIENCE = 5.0  # seconds in which a busy node should have given back what it was told to


@dataclass(slots=True)
class Holding:
    """One accelerator of ours: what it is really called, and the bundle it is in."""

    name: str
    bundle: Bundle


@dataclass(slots=True)
class Reservation:
    """The accelerators of one job. It grows with the groups that are launched, and ends with the job."""

    job: str
    live: Sequence[LiveNode]
    held: dict[tuple[int, int], Holding] = field(default_factory=dict)
    whole_nodes: bool = False  # take every accelerator of a node that is used at all
    _groups: list[PlacementGroup] = field(default_factory=list)

    def ensure(self, needs: Mapping[int, set[int]], timeout: float = 30.0) -> None:
        """Hold these devices too. Refused at once when they cannot be had, and then nothing is kept."""
        if self.whole_nodes:
            needs = {
                node: set(range(self.live[node].facts.accelerators.count)) | needs[node] for node in needs
            }
        if not self._missing(needs):
            return
        deadline = time.monotonic() + timeout
        with reserving(self.job, self.live[0].node_id, deadline):
            self._refresh()
            missing = self._missing(needs)
            if not missing:
                return
            self._preflight(missing)
            taken: list[PlacementGroup] = []
            try:
                self._accept(self._take_if_possible(missing, taken, deadline))
            except BaseException:
                _give_back(taken)
                raise
            self._groups += taken
            self._publish()  # before the next job's turn: it must know which numbers are ours

    def take_first(self, count: int, nodes: Sequence[int], timeout: float = 30.0) -> list[tuple[int, int]]:
        """`count` accelerators, the first free ones in the order of these nodes: (node, device), in order.

        Which ones of a node Ray grants is measured, with one probe a node.
        """
        deadline = time.monotonic() + timeout
        with reserving(self.job, self.live[0].node_id, deadline):
            self._refresh()
            counts = self._free_counts(count, nodes, min(deadline, time.monotonic() + SETTLING))
            part = {rank: tuple(range(number)) for rank, number in counts.items()}
            group = self._pinned(part)
            try:
                self._await(group, part, deadline)
                taken = self._granted(group, counts)
            except BaseException:
                _give_back([group])
                raise
            self._groups.append(group)
            self.held.update(taken)
            self._publish()
        return sorted(taken)

    def _free_counts(self, count: int, nodes: Sequence[int], deadline: float) -> dict[int, int]:
        """How many to take on each node.

        Ray's view of what is free is a moment old: until it agrees with the placement groups that stand, it
        is asked again, so that a job started right after another one ended gets the same accelerators.
        """
        there = [self.live[rank].facts.as_node(rank) for rank in nodes]
        while True:
            found = holders(self.live, nodes, self.job)
            expected, _ = first_free(count, there, found)
            counts, findings = first_free(count, there, found, free_by_ray(self.live, nodes))
            settled = counts == expected or time.monotonic() > deadline
            if settled and findings:
                raise ReservationError(*findings)
            if settled:
                return counts
            time.sleep(_POLL)

    def _granted(self, group: PlacementGroup, counts: Mapping[int, int]) -> dict[tuple[int, int], Holding]:
        """What came of one bundle on each node, in whatever order Ray has the bundles."""
        asked = {
            (group, index): (ray_resource(self.live[rank]), counts[rank])
            for index, rank in enumerate(sorted(counts))
        }
        ranks = {node.node_id: rank for rank, node in enumerate(self.live)}
        taken = {}
        for bundle, granted in measure(asked).items():
            rank = ranks[granted.node_id]
            known, names = self.live[rank].facts.device_names, granted.names
            if not names:  # Ray only counts these
                ours = self._ours(rank)
                names = [name for device, name in enumerate(known) if device not in ours][: counts[rank]]
            for name in names:
                taken[(rank, known.index(name))] = Holding(name, bundle)
        return taken

    def _ours(self, rank: int) -> frozenset[int]:
        names = [one.name for (node, _), one in self.held.items() if node == rank]
        return device_numbers(self.live[rank], names)

    def _missing(self, needs: Mapping[int, set[int]]) -> dict[int, set[int]]:
        return {
            node: absent
            for node, devices in needs.items()
            if (absent := {device for device in devices if (node, device) not in self.held})
        }

    def _refresh(self) -> None:
        """What the job holds by now: its other processes may have taken more, or ended."""
        manager = ray.get_actor(NodeManager.NAME, namespace=job_namespace(self.job))
        told = answer(manager.get_held.remote(), "reading the reservation")
        there = standing()
        everything = {**told, **self.held}
        self.held = {key: one for key, one in everything.items() if one.bundle[0].id.hex() in there}

    def bundle_for(self, node: int, devices: Sequence[int]) -> Bundle | None:
        return self.held[(node, devices[0])].bundle if devices else None

    def device_names(self, node: int, devices: Sequence[int]) -> list[str]:
        return [self.held[(node, device)].name for device in devices]

    def give_back(self, devices: Collection[tuple[int, int]]) -> None:
        """Let go of these devices: of every placement group that holds nothing else of ours."""
        dropped = {self.held.pop(key).bundle[0].id.hex() for key in devices if key in self.held}
        dropped -= {one.bundle[0].id.hex() for one in self.held.values()}
        ended = [group for group in self._groups if group.id.hex() in dropped]
        self._groups = [group for group in self._groups if group not in ended]
        _give_back(ended)

    def release(self) -> None:
        groups, self._groups = self._groups, []
        self.held = {}
        _give_back(groups)

    # -- before anything is created ------------------------------------------------------------------

    def _preflight(self, missing: Mapping[int, set[int]], besides: PlacementGroup | None = None) -> None:
        nodes = [node.facts.as_node(rank) for rank, node in enumerate(self.live)]
        findings = shortages(missing, nodes, holders(self.live, missing, self.job, besides))
        if findings:
            raise ReservationError(*findings)

    # -- taking --------------------------------------------------------------------------------------

    def _take_if_possible(
        self, missing: Mapping[int, set[int]], taken: list[PlacementGroup], deadline: float
    ) -> dict[Bundle, tuple[int, tuple[int, ...]]]:
        pieces = self._pieces(missing)
        try:
            return self._take(pieces, taken, deadline)
        except ReservationError:
            wanted = {r: [cut for cut in cuts if cut[0]] for r, cuts in pieces.items()}
            if wanted == pieces:
                raise
            # Tasks outside any placement group hold some, nobody knows which: then whatever there is.
            _give_back(taken)
            taken.clear()
            return self._take(wanted, taken, deadline)

    def _pieces(self, missing: Mapping[int, set[int]]) -> dict[int, list[tuple[bool, tuple[int, ...]]]]:
        """What to take on each node, in turn: the wanted devices, and those that stand before them."""
        found = holders(self.live, missing, self.job)
        pieces = {}
        for rank, wanted in missing.items():
            there = [holder for holder in found if holder.node == rank]
            ours = self._ours(rank)
            total = self.live[rank].facts.accelerators.count
            free = set(range(total)) - ours.union(*[holder.devices or () for holder in there]) | wanted
            spare = int(total - sum(holder.count for holder in there)) - len(wanted)
            pieces[rank] = runs(wanted, free, spare)
        return pieces

    def _take(
        self,
        pieces: Mapping[int, Sequence[tuple[bool, tuple[int, ...]]]],
        taken: list[PlacementGroup],
        deadline: float,
    ) -> dict[Bundle, tuple[int, tuple[int, ...]]]:
        """Bundles that hold the wanted devices, each with its node and the devices it should be."""
        bundles: dict[Bundle, tuple[int, tuple[int, ...]]] = {}
        fillers: list[PlacementGroup] = []
        try:
            for step in range(max(len(cuts) for cuts in pieces.values())):
                for is_wanted, keep in ((True, taken), (False, fillers)):
                    part = {
                        r: cuts[step][1]
                        for r, cuts in pieces.items()
                        if len(cuts) > step and cuts[step][0] == is_wanted
                    }
                    if not part:
                        continue
                    group = self._pinned(part)
                    keep.append(group)
                    self._await(group, part, deadline)
                    if is_wanted:
                        bundles.update({(group, i): (r, part[r]) for i, r in enumerate(sorted(part))})
        finally:
            _give_back(fillers)
        return bundles

    def _pinned(self, part: Mapping[int, tuple[int, ...]]) -> PlacementGroup:
        ranks = sorted(part)
        return placement_group(
            [{ray_resource(self.live[rank]): len(part[rank])} for rank in ranks],
            # The node id as a label keeps our order; strategies such as PACK do not.
            bundle_label_selector=[{"ray.io/node-id": self.live[rank].node_id} for rank in ranks],
            name=f"{NAMESPACE}/{self.job}/{secrets.token_hex(4)}",  # Ray wants names to be unique
        )

    def _await(self, group: PlacementGroup, part: Mapping[int, tuple[int, ...]], deadline: float) -> None:
        """Wait for a bundle, but not for one that cannot come."""
        while not group.wait(_POLL):
            state = placement_group_table(group)["stats"]["scheduling_state"]
            if state in ("INFEASIBLE", "NO_RESOURCES") or time.monotonic() > deadline:
                # Not counting the group itself, which may have come just now.
                self._preflight({rank: set(devices) for rank, devices in part.items()}, besides=group)
                if state == "NO_RESOURCES" and time.monotonic() < min(deadline, _patience(group)):
                    continue  # something just ended and is being given back
                raise ReservationError(
                    *[
                        Finding(
                            code="RE107",
                            what=f"{self.live[rank].facts.as_node(rank)}: accelerators {ranges(devices)} cannot be reserved",
                            why="Ray does not grant them: tasks or actors outside any placement group hold accelerators there",
                            remedy="`ray status -v` shows usage; end what holds them",
                        )
                        for rank, devices in part.items()
                    ]
                )

    # -- which ones they are -------------------------------------------------------------------------

    def _accept(self, bundles: Mapping[Bundle, tuple[int, tuple[int, ...]]]) -> None:
        measured = self._measure(bundles)
        holdings: dict[tuple[int, int], Holding] = {}
        moved: list[str] = []
        for bundle, (rank, planned) in bundles.items():
            names = self.live[rank].facts.device_names
            for device, name in match(planned, measured[bundle], names).items():
                holdings[(rank, device)] = Holding(name, bundle)
                if device >= len(names) or names[device] != name:
                    moved.append(f"node {rank}: {name} instead of {names[device]}")
        if moved:
            # Somebody outside roost holds what was planned, or Ray would have granted it.
            finding = Finding(
                code="RW202",
                what=f"{len(moved)} accelerators are not the planned ones",
                why="; ".join(moved[:4]) + (" ..." if len(moved) > 4 else ""),
                remedy="end what else uses these nodes to get exactly the planned ones",
            )
            log.warning("%s", render([finding]))
        self.held.update(holdings)

    def _measure(self, bundles: Mapping[Bundle, tuple[int, tuple[int, ...]]]) -> dict[Bundle, list[str]]:
        """The names Ray granted: known where a bundle holds a whole node, measured elsewhere."""
        names: dict[Bundle, list[str]] = {}
        partial: dict[Bundle, tuple[str, int]] = {}
        for bundle, (rank, planned) in bundles.items():
            if len(planned) == self.live[rank].facts.accelerators.count:
                names[bundle] = list(self.live[rank].facts.device_names)
            else:
                partial[bundle] = (ray_resource(self.live[rank]), len(planned))
        for bundle, granted in (measure(partial) if partial else {}).items():
            rank, planned = bundles[bundle]
            names[bundle] = granted.names or [
                self.live[rank].facts.device_names[device] for device in planned
            ]
        return names

    def _publish(self) -> None:
        manager = ray.get_actor(NodeManager.NAME, namespace=job_namespace(self.job))
        answer(manager.add_holdings.remote(self.held), "recording the reservation")


_first_seen: dict[str, float] = {}


def _patience(group: PlacementGroup) -> float:
    """Until when this group may wait, from when it was first seen waiting."""
    return _first_seen.setdefault(group.id.hex(), time.monotonic()) + PATIENCE


def _give_back(groups: Sequence[PlacementGroup]) -> None:
    for group in groups:
        _first_seen.pop(group.id.hex(), None)
        if ray.is_initialized():
            remove_placement_group(group)
