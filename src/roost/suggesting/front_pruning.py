"""Which states of a front can still lead to the best arrangement, and what still matters about them."""

from __future__ import annotations

import numpy as np

from roost.suggesting.front_records import Key, Known, Space
from roost.suggesting.state_rows import TIE
from roost.suggesting.thinning import Thinning

# Of accelerators and of the first item: states that differ in these often lead to the same iteration.
_WORTH_OF_ROWS = 0.3


class FrontPruning:
    def __init__(self, space: Space, known: Known) -> None:
        self.space, self.known = space, known
        self.sets, self.rows, self.profile = space.sets, space.rows, space.problem.profile
        weights = self.profile.weights
        self.least_renewal = min(weights.together, weights.apart) if weights else 0.0

    def room(self, members: int) -> float:
        """The seconds that a set may take, the renewal of the weights aside if it is still to come."""
        still = 0.0 if members & self.sets.pair == self.sets.pair else self.least_renewal
        return self.known.limit * (1 + 2 * TIE) - still

    def promising(self, members: int, operation: str, fed: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The pairs that are neither too slow nor too large, before their other rows are computed."""
        T, f, W = self.rows.T, self.rows.f, self.rows.W
        if operation == "turns":
            seconds = a[T] + b[T]
            held = [np.maximum(a[place], b[place]) for place in range(T)]
            fits = np.ones(seconds.shape, dtype=bool)
        else:
            seconds = np.maximum(a[T] + b[f], a[f] + b[T]) if fed else np.maximum(a[T], b[T])
            held = [a[place] + b[place] for place in range(T)]
            fits = held[0] <= self.rows.totals[0]
            for here, total in zip(held[1:], self.rows.totals[1:], strict=True):
                fits &= here <= total
        room = self.room(members) - (a[W] + b[W])
        fits &= self.space.rest_of_iteration.may_allow(members, held, seconds, room)
        return np.flatnonzero(fits)

    def usable(self, key: Key, low: np.ndarray) -> np.ndarray:
        """Which candidates fit, and can still lead to the best arrangement."""
        rows = self.rows
        fits = rows.fits(low)
        room = self.room(key.members) - low[rows.W]
        fits &= self.space.rest_of_iteration.allows(key.members, low[: rows.T], low[rows.T], room)
        if key in self.known.ruled:
            left = np.flatnonzero(fits)
            states = self.reduced(key, low[:, left])
            for ruled in reversed(self.known.ruled[key]):
                alive = ~ruled.covers(states)
                left, states = left[alive], states[:, alive]
            fits[:] = False
            fits[left] = True
        return fits

    def reduced(self, key: Key, rows: np.ndarray) -> np.ndarray:
        """The rows with zeros for what no longer matters."""
        rows = rows.copy()
        if self._first_item_is_moot(key.members, key.place):
            rows[self.rows.f] = 0
        if key.place == "free":
            rows[self.rows.R], rows[self.rows.P] = 0, 0
        if key.members == self.sets.everything and key.place == "free":
            rows[self.rows.T] += rows[self.rows.W]
            rows[self.rows.W] = 0
        return rows

    def _first_item_is_moot(self, members: int, place: str) -> bool:
        everything = self.sets.everything
        if members == everything or (place == "free" and self.profile.asynchronous):
            return True
        if not self.space.beside or place == "first":
            return True
        others = everything ^ members  # with any of them the set may form one that feeds or is fed
        return not (self.sets.fed(everything, others) or self.sets.fed(others, members))

    def thinning(self, members: int, low: np.ndarray, cap: int) -> Thinning:
        """How to thin candidates of a set. A unit of a row is worth what it changes an iteration by, about."""
        rows, rest = self.rows, self.space.rest_of_iteration
        seconds = np.median(low[rows.T])
        worth = np.ones(len(low))
        worth[: rows.T] = _WORTH_OF_ROWS * rest.prices[0] * seconds
        worth[rows.f] = _WORTH_OF_ROWS
        worth[rows.R] = worth[rows.P] = seconds / np.maximum(rows.most, 1.0)
        return Thinning(cap, worth, lambda states: rest.estimate(members, states[: rows.T], states[rows.T]))
