"""One pass of the solver: the fronts of all sets of components, from small sets to large ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from roost.suggesting.arrangement import Arrangement, Beside, Leaf, Turns
from roost.suggesting.component_sets import Way, Ways
from roost.suggesting.front_pruning import FrontPruning
from roost.suggesting.front_records import Front, Key, Known, OverBudget, Space, Step
from roost.suggesting.fronts import select

_CALL = 400  # pairs that could be compared in the time that comparing takes to begin
_CHUNK = 25_000  # pairs at a time: their rows fit into a cache


class FrontBuilding:
    def __init__(
        self,
        space: Space,
        known: Known,
        ways: Ways,
        cap: int,
        *,
        only_fastest: bool = False,
        stand_ins: bool = True,
    ) -> None:
        """Build fronts of at most about `cap` states. `exact` says whether none was thinned.

        Without stand-ins, states that are thinned out are forgotten: good arrangements are found, but no bound.
        """
        self.stand_ins = stand_ins
        self.space, self.known, self.ways, self.cap = space, known, ways, cap
        self.sets, self.rows, self.profile = space.sets, space.rows, space.problem.profile
        self.pruning = FrontPruning(space, known)
        self.only_fastest = only_fastest
        self.fronts: dict[Key, Front] = {}
        self.by_set: dict[tuple[int, str], list[Key]] = {}
        self.pending: dict[Key, list[tuple[Step, np.ndarray, np.ndarray]]] = {}
        self.whole: list[tuple[Step, np.ndarray, np.ndarray]] = []  # all candidates for the whole tree
        self.exact = True
        for members in sorted(ways, key=lambda one: (one.bit_count(), one)):
            self._fill(members)

    # -- what was found ----------------------------------------------------------------------------------

    @property
    def roots(self) -> list[Key]:
        return self.by_set.get((self.sets.everything, "free"), [])

    def tree(self, key: Key, state: int) -> Arrangement:
        front = self.fronts[key]
        number, one, two = (int(part) for part in front.origin[:, state])
        step = front.steps[number]
        if step.operation != "leaf":
            return self._made(step, one, two)
        (name,) = self.sets.named(key.members)
        if not self.profile.components[name].needs_accelerators:
            return Leaf(component=name)
        place = step.first.partner
        return Leaf(component=name, accelerators=int(front.real[place, state]), group=self.rows.labels[place])

    def _made(self, step: Step, one: int, two: int) -> Arrangement:
        first = self.tree(step.first, one)
        if step.second is None:
            return first
        kind = Turns if step.operation == "turns" else Beside
        return kind(first=first, second=self.tree(step.second, two))

    def good_trees(self, of_each: int) -> Iterator[Arrangement]:
        """The trees with the least seconds and with the lowest bounds, some of each way, best first."""
        found: list[tuple[float, Step, int]] = []
        for step, low, real in self.whole:
            for rows in (low,) if real is low else (low, real):
                seconds = rows[self.rows.T] + rows[self.rows.W]
                best = np.argsort(seconds)[:of_each]
                found += [(float(seconds[at]), step, int(at)) for at in best if seconds[at] < np.inf]
        for _, step, at in sorted(found, key=lambda one: one[0]):
            if step.operation != "leaf":
                yield self._made(step, int(step.one[at]), int(step.two[at]))

    # -- sets --------------------------------------------------------------------------------------------

    def _fill(self, members: int) -> None:
        whole = members == self.sets.everything
        if members & (members - 1) == 0:
            for place in ("free",) if whole else ("below", "free"):
                self._leaf(members, place)
            self._first(members)
            return
        turns = [way for way in self.ways[members] if way.operation == "turns"]
        beside = [way for way in self.ways[members] if way.operation == "beside"]
        self._join(members, "turns", "below", turns)
        if self.space.turns and not whole:
            self._join(members, "below", "below", beside)
            self._first(members)
            if not self.profile.asynchronous and not self._switches(members):
                # No component pays, so both fronts are equal.
                for key in self.by_set.get((members, "below"), ()):
                    self._alias(key)
                return
        self._join(members, "free", "free", beside)

    def _leaf(self, members: int, place: str) -> None:
        (name,) = self.sets.named(members)
        held = self.profile.components[name].needs_accelerators
        for number, label in enumerate(self.rows.labels) if held else ((-1, ""),):
            if label and label not in self.space.problem.curves[name]:
                continue
            rows = self.rows.leaf(name, number if held else None, place == "below", self.only_fastest)
            partner = number if (members & self.sets.pair).bit_count() == 1 else 0
            self._offer(Key(members, place, partner), "leaf", Key(members, "", number), rows, rows)
        self._settle(members, place)

    def _first(self, members: int) -> None:
        """The fronts for the first of two that take turns: when its first item is out does not matter."""
        self._copy(members, "below", "first")
        self._settle(members, "first")

    def _alias(self, key: Key) -> None:
        twin = key._replace(place="free")
        if twin in self.known.hopeless:
            return
        front = self.fronts[key]
        every = np.arange(front.low.shape[1], dtype=np.int32)
        step = Step("same", key, None, one=every, two=np.zeros_like(every), stands=every)
        origin = np.stack([np.zeros_like(every), every, np.zeros_like(every)])
        self.fronts[twin] = Front(front.low, front.real, origin, [step])
        self.by_set.setdefault((key.members, "free"), []).append(twin)

    def _switches(self, members: int) -> bool:
        parts = [self.profile.components[name] for name in self.sets.named(members)]
        return any(part.switch and part.needs_accelerators for part in parts)

    def _join(self, members: int, place: str, inner: str, ways: list[Way]) -> None:
        if place != "turns":
            self._copy(members, "turns", place)
        for way in ways:
            for first in self.by_set.get((way.first, "first" if way.operation == "turns" else inner), ()):
                for second in self.by_set.get((way.second, inner), ()):
                    self._pairs(members, place, way.operation, first, second)
        self._settle(members, place)

    def _copy(self, members: int, source: str, place: str) -> None:
        for key in self.by_set.get((members, source), ()):
            front = self.fronts[key]
            self._offer(key._replace(place=place), "same", key, front.low, front.real)

    # -- candidates --------------------------------------------------------------------------------------

    def _offer(self, key: Key, kind: str, source: Key, low: np.ndarray, real: np.ndarray) -> None:
        """Offer states that come from one place."""
        if key in self.known.hopeless:
            return
        fits = np.flatnonzero(self.pruning.usable(key, low)).astype(np.int32)
        step = Step(kind, source, None, one=fits, two=np.zeros_like(fits))
        left = low[:, fits]
        self._add(key, step, left, left if real is low else real[:, fits])

    def _pairs(self, members: int, place: str, operation: str, first: Key, second: Key) -> None:
        """Offer every state of the first front with every state of the second."""
        rows = self.rows
        one, two = self.fronts[first], self.fronts[second]
        partner, renewal = self._renewal(operation, first, second)
        loose = place == "free" and self.profile.asynchronous
        fed = self.sets.fed(first.members, second.members) and not loose
        widths = self.space.problem.widths
        width = max(widths.get(name, 1) for name in self.sets.named(members))
        key = Key(members, place, partner)
        if key in self.known.hopeless:
            return
        many = two.low.shape[1]
        chunk = max(1, _CHUNK // many)
        for start in range(0, one.low.shape[1], chunk):
            part = one.low[:, start : start + chunk]
            self.known.pairs_left -= part.shape[1] * many + _CALL
            if self.known.pairs_left < 0:
                raise OverBudget
            fits = self.pruning.promising(members, operation, fed, part[:, :, None], two.low[:, None, :])
            ones, twos = (fits // many + start).astype(np.int32), (fits % many).astype(np.int32)
            low = rows.merged(operation, fed, width, one.low[:, ones], two.low[:, twos])
            low[rows.W] += renewal
            alive = np.flatnonzero(self.pruning.usable(key, low))
            if not len(alive):
                continue
            low, ones, twos = low[:, alive], ones[alive], twos[alive]
            real = low
            if not (one.low is one.real and two.low is two.real):
                real = rows.merged(operation, fed, width, one.real[:, ones], two.real[:, twos])
                real[rows.W] += renewal
                real[rows.T, ~rows.fits(real)] = np.inf
            self._add(key, Step(operation, first, second, ones, twos), low, real)

    def _renewal(self, operation: str, first: Key, second: Key) -> tuple[int, float]:
        """The group of the partner that is still to come, and what renewing the weights takes if both are here."""
        inside = [key for key in (first, second) if (key.members & self.sets.pair).bit_count() == 1]
        if len(inside) == 1:
            return inside[0].partner, 0.0
        if len(inside) == 2:
            weights = self.profile.weights
            assert weights is not None
            together = operation == "turns" and first.partner == second.partner >= 0
            return 0, weights.together if together else weights.apart
        return 0, 0.0

    # -- fronts ------------------------------------------------------------------------------------------

    def _add(self, key: Key, step: Step, low: np.ndarray, real: np.ndarray) -> None:
        """Add candidates to a front that is being made."""
        genuine, low = real is low, self.pruning.reduced(key, low)
        if low.shape[1]:
            real = low if genuine else self.pruning.reduced(key, real)
            self.pending.setdefault(key, []).append((step, low, real))

    def _settle(self, members: int, place: str) -> None:
        """Make the fronts of a set from the candidates that were added."""
        pending, self.pending = self.pending, {}
        for key, offers in pending.items():
            if members == self.sets.everything:
                self.whole += [offer for offer in offers if offer[0].operation != "same"]
            low = np.concatenate([low for _, low, _ in offers], axis=1)
            genuine = all(real is low_ for _, low_, real in offers)
            real = low if genuine else np.concatenate([real for _, _, real in offers], axis=1)
            chosen = select(low, real, self.pruning.thinning(members, low, self.cap))
            starts = np.cumsum([0, *(part.shape[1] for _, part, _ in offers)])
            for (step, _, _), start, stop in zip(offers, starts, starts[1:], strict=False):
                step.stands = chosen.stands[start:stop]
            number = np.searchsorted(starts, chosen.kept, side="right") - 1
            ones = np.concatenate([step.one for step, _, _ in offers])
            twos = np.concatenate([step.two for step, _, _ in offers])
            origin = np.stack([number, ones[chosen.kept], twos[chosen.kept]])
            picked = real[:, chosen.kept]
            if genuine and np.array_equal(picked, chosen.low):
                picked = chosen.low
            else:
                self.exact = False
            low = chosen.low if self.stand_ins else picked
            self.fronts[key] = Front(low, picked, origin, [step for step, _, _ in offers])
            self.by_set.setdefault((members, place), []).append(key)
            self.known.largest = max(self.known.largest, len(chosen.kept))
