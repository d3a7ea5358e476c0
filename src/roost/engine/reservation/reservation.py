"""The accelerators a job holds. Nothing else in roost takes accelerators from Ray."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ray.util.placement_group import PlacementGroup

from roost.engine.connection.actors import answer, find_actor
from roost.engine.connection.discovery import LiveNode
from roost.engine.job.managers import NodeManager
from roost.engine.reservation.bundle_requests import (
    bundle_sizes,
    check_free,
    give_back,
    take,
    take_exactly,
)
from roost.engine.reservation.held_accelerator import HeldAccelerator
from roost.engine.reservation.holders import (
    POLL,
    SETTLING,
    device_numbers,
    free_by_ray,
    holders,
    ray_resource,
    settled_holders,
    standing,
)
from roost.engine.reservation.measuring import Bundle, BundleSize, measure
from roost.engine.reservation.reservation_lock import reserving
from roost.errors import Finding, ReservationError, render
from roost.planning.component_plan import AcceleratorKey
from roost.planning.preflight import first_free, match

log = logging.getLogger("roost")


@dataclass(slots=True)
class Reservation:
    """The accelerators of one job. It grows when groups are launched, and ends with the job."""

    job: str
    live: Sequence[LiveNode]
    held: dict[AcceleratorKey, HeldAccelerator] = field(default_factory=dict)
    whole_nodes: bool = False  # take every accelerator of a node that is used at all
    attached: bool = False  # another process of the job may give back accelerators in `held`
    _groups: list[PlacementGroup] = field(default_factory=list)

    # -- holding more ------------------------------------------------------------------------------------

    def ensure(
        self, needs: Mapping[int, set[int]], timeout: float = 30.0, exact: bool = False, apart: bool = False
    ) -> None:
        """Hold these devices too, all or none. Raises at once if others hold them.

        If a program outside roost holds one of them, take another accelerator of that node and warn; with
        `exact`, raise. With `apart`, each device is in a bundle of its own, with a CPU.
        """
        if self.whole_nodes:
            needs = {
                node: set(range(self.live[node].facts.accelerators.count)) | needs[node] for node in needs
            }
        if self.attached:
            self.refresh()
        if not self._missing(needs):
            return
        deadline = time.monotonic() + timeout
        with reserving(self.job, self.live[0].node_id, deadline):
            self.refresh()
            missing = self._missing(needs)
            if not missing:
                return
            check_free(self.job, self.live, missing)
            if exact:  # until Ray has freed what others gave back, it grants other numbers
                settled_holders(self.live, missing, self.job, min(deadline, time.monotonic() + SETTLING))
            ours = {rank: self._ours(rank) for rank in missing}
            group = take_exactly(self.job, self.live, missing, ours, deadline, apart)
            self._keep(group, lambda: self._matched(group, missing, exact, apart))

    def take_first(
        self, count: int, nodes: Sequence[int], timeout: float = 30.0, apart: bool = False
    ) -> list[AcceleratorKey]:
        """Take the first `count` free accelerators in the order of these nodes: (node, device), in order.

        One probe a node measures which accelerators Ray granted there.
        """
        deadline = time.monotonic() + timeout
        with reserving(self.job, self.live[0].node_id, deadline):
            self.refresh()
            counts = self._free_counts(count, nodes, min(deadline, time.monotonic() + SETTLING))
            while True:
                part = {rank: range(number) for rank, number in counts.items()}
                try:
                    group = take(self.job, self.live, part, deadline, apart)
                    break
                except ReservationError:
                    # Ray's view was perhaps older than work outside roost that had just started.
                    newer = self._free_counts(count, nodes, time.monotonic())
                    if newer == counts or time.monotonic() > deadline:
                        raise
                    counts = newer
            taken = self._keep(group, lambda: self._numbered(group, counts, apart))
        order = {rank: position for position, rank in enumerate(nodes)}
        return sorted(taken, key=lambda key: (order[key[0]], key[1]))[:count]

    def _keep(
        self, group: PlacementGroup, measured: Callable[[], dict[AcceleratorKey, HeldAccelerator]]
    ) -> dict[AcceleratorKey, HeldAccelerator]:
        """Record the granted accelerators, or give them back if measuring or recording fails."""
        try:
            holdings = measured()
            self.held.update(holdings)
            self._publish()  # before the next job reserves: it must know which numbers this job holds
        except BaseException:
            give_back([group])
            raise
        self._groups.append(group)
        return holdings

    def _free_counts(self, count: int, nodes: Sequence[int], deadline: float) -> dict[int, int]:
        """The number of accelerators to take on each node.

        Ray's view of free accelerators is a moment old. Ask again until it agrees with the existing placement
        groups, so that a job started right after another one ended gets the same accelerators.
        """
        there = [self.live[rank].facts.as_node(rank) for rank in nodes]
        while True:
            found = holders(self.live, nodes, self.job)
            expected, _ = first_free(count, there, found, whole_nodes=self.whole_nodes)
            free = free_by_ray(self.live, nodes)
            counts, findings = first_free(count, there, found, free, self.whole_nodes)
            settled = counts == expected or time.monotonic() > deadline
            if settled and findings:
                raise ReservationError(*findings)
            if settled:
                return counts
            time.sleep(POLL)

    # -- which accelerators --------------------------------------------------------------------------

    def _granted(
        self, group: PlacementGroup, counts: Mapping[int, int], apart: bool, known: Collection[int] = ()
    ) -> dict[int, list[tuple[str, Bundle]]]:
        """The name and the bundle of each accelerator granted on each node; empty names if Ray has none.

        Does not measure nodes in `known`.
        """
        by_node: dict[int, list[BundleSize]] = {}
        for index, (rank, size) in enumerate(bundle_sizes(counts, apart)):
            resource = ray_resource(self.live[rank])
            by_node.setdefault(rank, []).append(BundleSize((group, index), resource, size))
        ranks = {node.node_id: rank for rank, node in enumerate(self.live)}
        found: dict[int, list[tuple[str, Bundle]]] = {}
        for bundle, measured in measure(
            [sizes for rank, sizes in by_node.items() if rank not in known]
        ).items():  # Ray may place bundles in any order
            rank = ranks[measured.node_id]
            names = measured.names or [""] * (1 if apart else counts[rank])
            found.setdefault(rank, []).extend((name, bundle) for name in names)
        return found

    def _matched(
        self, group: PlacementGroup, planned: Mapping[int, set[int]], exact: bool, apart: bool
    ) -> dict[AcceleratorKey, HeldAccelerator]:
        """The granted accelerator of each planned device: the planned one, unless a program outside roost has it."""
        known = {rank: self.live[rank].facts.device_names for rank in planned}
        bundles = {rank: (group, index) for index, rank in enumerate(sorted(planned))}
        # A bundle of a whole node has all its accelerators, so it needs no measuring.
        whole = {rank for rank in planned if not apart and len(planned[rank]) == len(known[rank])}
        counts = {rank: len(devices) for rank, devices in planned.items()}
        granted = self._granted(group, counts, apart, whole)
        holdings: dict[AcceleratorKey, HeldAccelerator] = {}
        moved: list[str] = []
        for rank, devices in planned.items():
            there = [(name, bundles[rank]) for name in known[rank]] if rank in whole else granted[rank]
            for device, held in _assigned(devices, there, known[rank]).items():
                holdings[(rank, device)] = held
                if known[rank][device] != held.name:
                    moved.append(f"node {rank}: {held.name} instead of {known[rank][device]}")
        if moved:
            self._report(moved, exact)
        return holdings

    def _report(self, moved: Sequence[str], exact: bool) -> None:
        """Warn, or raise with `exact`: a program outside roost must hold the planned accelerators."""
        finding = Finding(
            code="RE107" if exact else "RW202",
            what=f"{len(moved)} accelerators are not the planned ones",
            why="; ".join(moved[:4]) + (" ..." if len(moved) > 4 else ""),
            remedy="end what else uses these nodes to get exactly the planned ones",
        )
        if exact:
            raise ReservationError(finding)
        log.warning("%s", render([finding]))

    def _numbered(
        self, group: PlacementGroup, counts: Mapping[int, int], apart: bool
    ) -> dict[AcceleratorKey, HeldAccelerator]:
        """The granted accelerators by node and number."""
        taken: dict[AcceleratorKey, HeldAccelerator] = {}
        for rank, granted in self._granted(group, counts, apart).items():
            known = self.live[rank].facts.device_names
            # A number may stand for another accelerator that was granted in its place: never use it twice.
            free = [device for device in range(len(known)) if (rank, device) not in self.held]
            names = {name for name, _ in granted}
            numbers = sorted(free, key=lambda device: known[device] not in names)[: len(granted)]
            for device, held in _assigned(numbers, granted, known).items():
                taken[(rank, device)] = held
        return taken

    # -- what is held ------------------------------------------------------------------------------------

    def _ours(self, rank: int) -> frozenset[int]:
        names = [one.name for (node, _), one in self.held.items() if node == rank]
        return device_numbers(self.live[rank], names)

    def _missing(self, needs: Mapping[int, set[int]]) -> dict[int, set[int]]:
        return {
            node: absent
            for node, devices in needs.items()
            if (absent := {device for device in devices if (node, device) not in self.held})
        }

    def refresh(self) -> None:
        """Update `held`: other processes of the job may have taken accelerators or given them back."""
        manager = find_actor(NodeManager.NAME, self.job)
        told = answer(manager.get_held.remote(), "reading the reservation")
        there = standing()
        everything = {**told, **self.held}
        self.held = {key: one for key, one in everything.items() if one.bundle[0].id.hex() in there}

    def _publish(self) -> None:
        manager = find_actor(NodeManager.NAME, self.job)
        answer(manager.add_holdings.remote(self.held), "recording the reservation")

    def device_names(self, node: int, devices: Sequence[int]) -> list[str]:
        return [self.held[(node, device)].name for device in devices]

    # -- giving back -------------------------------------------------------------------------------------

    def give_back(self, devices: Collection[AcceleratorKey]) -> None:
        """Give these devices back, by removing the placement groups that hold no other device of the job."""
        dropped = {self.held.pop(key).bundle[0].id.hex() for key in devices if key in self.held}
        dropped -= {one.bundle[0].id.hex() for one in self.held.values()}
        ended = [group for group in self._groups if group.id.hex() in dropped]
        self._groups = [group for group in self._groups if group not in ended]
        give_back(ended)

    def release(self) -> None:
        groups, self._groups = self._groups, []
        self.held = {}
        give_back(groups)


def _assigned(
    devices: Collection[int], granted: Sequence[tuple[str, Bundle]], known: Sequence[str]
) -> dict[int, HeldAccelerator]:
    """A granted accelerator for each of a node's devices. One without a name gets the name of its device."""
    numbers = sorted(devices)
    named = {name or known[device]: bundle for device, (name, bundle) in zip(numbers, granted, strict=True)}
    return {
        device: HeldAccelerator(name, named[name]) for device, name in match(numbers, named, known).items()
    }
