"""Counts how launches and pools of this process use the job's accelerators, and gives back those that nothing uses."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from roost.engine.backend import Needs, PoolRequest, Position
from roost.engine.connection.cluster_watch import check_cluster
from roost.engine.reservation.reservation import Reservation
from roost.errors import ReservationError, counted
from roost.planning.component_plan import AcceleratorKey, by_node


class AcceleratorUses:
    """`used_by_groups` finds the accelerators of all groups of the job, whichever process launched them."""

    def __init__(self, reservation: Reservation, used_by_groups: Callable[[], set[AcceleratorKey]]) -> None:
        self.reservation, self._used_by_groups = reservation, used_by_groups
        self.launches: Counter[AcceleratorKey] = Counter()  # of this process, on each accelerator
        self._moved_to: dict[str, list[AcceleratorKey]] = {}  # accelerators that groups have moved to
        self._pooled: dict[AcceleratorKey, bool] = {}  # accelerators in pools, and whether a pool took them
        self._counting = threading.Lock()

    # -- launches --------------------------------------------------------------------------------------

    def reserve(self, needs: Needs) -> list[AcceleratorKey]:
        self.reservation.ensure(needs)
        keys = [(node, device) for node, devices in needs.items() for device in devices]
        with self._counting:
            self.launches.update(keys)
        return keys

    def unreserve(self, accelerators: Sequence[AcceleratorKey]) -> None:
        with self._counting:
            self.launches.subtract(accelerators)
        self._give_back_unused(accelerators)

    def _give_back_unused(self, accelerators: Iterable[AcceleratorKey]) -> None:
        with self._counting:
            unused = {key for key in accelerators if self.launches[key] <= 0 and key not in self._pooled}
        if unused:  # groups that other processes of the job have launched may sit there too
            self.reservation.give_back(unused - self._used_by_groups())

    def move(self, new: Mapping[str, set[AcceleratorKey]]) -> None:
        """Reserve the accelerators that groups move to, by the groups' names."""
        needs = by_node(set().union(*new.values()))
        if needs:
            check_cluster()
            self.reservation.ensure(needs)
        with self._counting:
            for name, keys in new.items():
                self.launches.update(keys)
                self._moved_to.setdefault(name, []).extend(keys)

    def group_ended(self, name: str) -> None:
        """Its launch gives back what it reserved. This gives back what the group has moved to."""
        if moved_to := self._moved_to.pop(name, None):
            self.unreserve(moved_to)

    # -- pools -----------------------------------------------------------------------------------------

    def take_positions(self, wanted: PoolRequest) -> list[Position]:
        if wanted.named is None:
            taken = self.reservation.take_first(wanted.count, wanted.nodes, wanted.timeout, wanted.apart)
            self._pooled.update(dict.fromkeys(taken, True))
        else:
            taken = self._take_named(wanted.named, wanted.timeout, wanted.apart)
        held = self.reservation.held
        return [
            Position(node=node, device=device, name=held[node, device].name, bundle=held[node, device].bundle)
            for node, device in taken
        ]

    def _take_named(
        self, wanted: Sequence[AcceleratorKey], timeout: float, apart: bool
    ) -> list[AcceleratorKey]:
        double = [key for key in wanted if key in self._pooled]
        if double:
            raise _held_already(double, "are in another pool of this job", "release that pool first")
        if apart:
            self.reservation.refresh()
            bundled = [key for key in wanted if key in self.reservation.held]
            if bundled:  # a group's accelerators of a node are one bundle, and it has no CPU
                how = "are held for worker groups of this job, which keeps them"
                raise _held_already(bundled, how, "create the placement groups before those worker groups")
        own = {key for key in wanted if key not in self.reservation.held}
        self.reservation.ensure(by_node(wanted), timeout, exact=True, apart=apart)
        self._pooled.update({key: key in own for key in wanted})
        return list(wanted)

    def leave_pool(self, accelerators: Iterable[AcceleratorKey]) -> set[AcceleratorKey]:
        """Those that the pool took itself. What a group held before the pool came is not the pool's to give back."""
        return {key for key in accelerators if self._pooled.pop(key, False)}

    def give_back_pool(self, own: set[AcceleratorKey], others: set[AcceleratorKey]) -> None:
        """Give back what a pool took, and of the others those whose group has ended since."""
        with self._counting:
            for key in own:
                del self.launches[key]
        self.reservation.give_back(own)
        self._give_back_unused(others)


def _held_already(keys: Sequence[AcceleratorKey], how: str, remedy: str) -> ReservationError:
    return ReservationError(
        code="RE107",
        what=f"{counted(len(keys), 'accelerator')} {how}",
        why=", ".join(f"node {node}: {device}" for node, device in keys[:8]),
        remedy=f"{remedy}, or name other accelerators",
    )
