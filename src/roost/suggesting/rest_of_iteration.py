"""The least that the components outside a subtree add to an iteration.

Two facts hold for every arrangement around a subtree with n of the N accelerators of a group and T seconds. The
subtree holds its accelerators for all its seconds, and the other components need theirs too: N times the iteration
is at least n T plus the sum of accelerators times seconds of the others on that group. And where the subtree feeds
a component, or is fed by one, or by a chain of them, the iteration is at least T plus the seconds to the first item
of each. Any mixture of these is a bound as well, and takes the sizes of the others for the same in all.

The mixture over groups is a price for each group's accelerators; all accelerators together cost 1. The prices under
which the components are dearest give the best bound: then a component gains nothing by moving to another group.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from roost.suggesting.component_sets import ComponentSets, bits
from roost.suggesting.problem import Problem

_MIXTURES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)  # the share of the first fact
_ROUNDS = 60  # of looking for prices
_TILTS = (1.0, 0.6, 1.7)  # of the price of the first group


class RestOfIteration:
    def __init__(self, problem: Problem, sets: ComponentSets) -> None:
        self.problem, self.sets = problem, sets
        self.totals = np.array([max(group.total, 1) for group in problem.groups], dtype=float)
        # Overlapping iterations do not wait for each other's first items.
        mixtures = (1.0,) if problem.profile.asynchronous else _MIXTURES
        self.part = cache(self._part)
        self.prices = list(self._prices())
        self.mixtures = [(share, at) for at in range(len(self.prices)) for share in mixtures]
        self.middle = len(mixtures) // 2
        self.rest = cache(self._rest)

    def allows(
        self, members: int, accelerators: np.ndarray, seconds: np.ndarray, room: np.ndarray
    ) -> np.ndarray:
        """Which states of a set can be part of an iteration of at most `room` seconds."""
        allowed: np.ndarray = seconds <= room
        held = [np.tensordot(prices, accelerators, 1) - 1 for prices in self.prices]
        for (share, at), rest in zip(self.mixtures, self.rest(members), strict=True):
            allowed &= seconds * (1 + share * held[at]) <= room - rest
        return allowed

    def estimate(self, members: int, accelerators: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """A bound on the iterations that these states of a set can be part of."""
        least: np.ndarray = seconds.copy()
        held = [np.tensordot(prices, accelerators, 1) - 1 for prices in self.prices]
        for (share, at), rest in zip(self.mixtures, self.rest(members), strict=True):
            np.maximum(least, seconds * (1 + share * held[at]) + rest, out=least)
        return least

    def may_allow(
        self, members: int, accelerators: list[np.ndarray], seconds: np.ndarray, room: np.ndarray
    ) -> np.ndarray:
        """A cheaper test, which lets more states pass."""
        share, at = self.mixtures[self.middle]
        rest = self.rest(members)[self.middle]
        held = sum(price * share * here for price, here in zip(self.prices[at], accelerators, strict=True))
        allowed: np.ndarray = seconds * (held + (1 - share)) <= room - rest
        allowed &= seconds <= room
        return allowed

    def _prices(self) -> Iterator[np.ndarray]:
        """Prices of an accelerator of each group, the best for the whole set of components first."""
        best = self._dearest()
        for tilt in _TILTS if len(self.totals) > 1 else (1.0,):
            tilted = best.copy()
            tilted[0] *= tilt
            yield tilted / (tilted * self.totals).sum()

    def _dearest(self) -> np.ndarray:
        """The prices under which all components together cost most, found by raising those of scarce groups."""
        share = np.full(len(self.totals), 1 / max(1, len(self.totals)))
        best: np.ndarray = share / self.totals
        most = -1.0
        for step in range(_ROUNDS if len(share) > 1 else 0):
            prices, used, cost = share / self.totals, np.zeros(len(share)), 0.0
            for curves in self.problem.curves.values():
                needs = [
                    (prices[at] * (curve.sizes * curve.seconds).min(), at)
                    for at, group in enumerate(self.problem.groups)
                    if (curve := curves.get(group.label)) is not None and len(curve.sizes)
                ]
                if needs:
                    least, at = min(needs)
                    cost += least
                    used[at] += least / prices[at] / self.totals[at]
            if cost > most:
                best, most = prices, cost
            share = share * np.exp(used / (used.max() or 1.0) / (1 + step / 4))
            share = share / share.sum()
        return best

    def _rest(self, members: int) -> list[float]:
        return [self._least(members, share, at) for share, at in self.mixtures]

    def _least(self, members: int, share: float, prices: int) -> float:
        sets = self.sets
        others = list(bits(sets.everything & ~members))
        alone = {bit: self.part(bit, share, 0.0, prices) for bit in others}
        more = {bit: self.part(bit, share, 1 - share, prices) - alone[bit] for bit in others}

        def after(source: int) -> float:
            """The most that a chain adds which starts with a component that needs one of these."""
            chains = (more[bit] + after(1 << bit) for bit in others if sets.needs[bit] & source)
            return max(chains, default=0.0)

        def before(needed: int) -> float:
            chains = (more[bit] + before(sets.needs[bit]) for bit in others if needed >> bit & 1)
            return max(chains, default=0.0)

        needed = 0
        for bit in bits(members):
            needed |= sets.needs[bit]
        return sum(alone.values()) + after(members) + before(needed)

    def _part(self, bit: int, share: float, first: float, prices: int) -> float:
        """The least of a component: what its accelerators' seconds cost, and its first item, in these proportions."""
        name = self.sets.names[bit]
        part = self.problem.profile.components[name]
        item = first / self.problem.profile.batch if part.streams else first
        if not part.needs_accelerators:
            return item * part.seconds
        curves = self.problem.curves[name]
        return min(
            (
                float(((share * price * curve.sizes + item) * curve.seconds).min())
                for price, group in zip(self.prices[prices], self.problem.groups, strict=True)
                if (curve := curves.get(group.label)) is not None and len(curve.sizes)
            ),
            default=0.0,
        )
