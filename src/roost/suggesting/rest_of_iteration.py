"""The least that the components outside a subtree add to an iteration.

Two facts hold for every arrangement around a subtree with n of the N accelerators and T seconds. The subtree
holds its accelerators for all its seconds, and the other components need theirs too: N times the iteration is at
least n T plus the sum of accelerators times seconds of the others. And where the subtree feeds a component, or is
fed by one, or by a chain of them, the iteration is at least T plus the seconds to the first item of each.
Any mixture of the two is a bound as well, and takes the sizes of the others for the same in both.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from roost.suggesting.component_sets import ComponentSets, bits
from roost.suggesting.problem import Problem

_MIXTURES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)  # the share of the first fact


class RestOfIteration:
    def __init__(self, problem: Problem, sets: ComponentSets) -> None:
        self.problem, self.sets = problem, sets
        self.total = float(sum(group.total for group in problem.groups)) or 1.0
        # Overlapping iterations do not wait for each other's first items.
        self.mixtures = (1.0,) if problem.profile.asynchronous else _MIXTURES
        self.rest = cache(self._rest)

    def allows(
        self, members: int, accelerators: np.ndarray, seconds: np.ndarray, room: np.ndarray
    ) -> np.ndarray:
        """Which states of a set can be part of an iteration of at most `room` seconds."""
        allowed: np.ndarray = seconds <= room
        held = accelerators / self.total - 1
        for share, rest in zip(self.mixtures, self.rest(members), strict=True):
            allowed &= seconds * (1 + share * held) <= room - rest
        return allowed

    def may_allow(
        self, members: int, accelerators: np.ndarray, seconds: np.ndarray, room: np.ndarray
    ) -> np.ndarray:
        """A cheaper test, which lets more states pass."""
        middle = len(self.mixtures) // 2
        share, rest = self.mixtures[middle], self.rest(members)[middle]
        held = accelerators * (share / self.total) + (1 - share)
        allowed: np.ndarray = seconds * held <= room - rest
        allowed &= seconds <= room
        return allowed

    def _rest(self, members: int) -> list[float]:
        return [self._least(members, share) for share in self.mixtures]

    def _least(self, members: int, share: float) -> float:
        sets = self.sets
        others = list(bits(sets.everything & ~members))
        alone = {bit: self._part(bit, share, 0.0) for bit in others}
        more = {bit: self._part(bit, share, 1 - share) - alone[bit] for bit in others}

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

    def _part(self, bit: int, share: float, first: float) -> float:
        """The least of a component: its accelerators' seconds, and its first item, in these proportions."""
        name = self.sets.names[bit]
        part = self.problem.profile.components[name]
        item = first / self.problem.profile.batch if part.streams else first
        if not part.needs_accelerators:
            return item * part.seconds
        curves = [curve for curve in self.problem.curves[name].values() if len(curve.sizes)]
        return min(
            (float(((share * curve.sizes / self.total + item) * curve.seconds).min()) for curve in curves),
            default=0.0,
        )
