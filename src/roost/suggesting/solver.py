"""Finds the best arrangement of a problem, and proves a bound that none can be below.

For each set of components the solver keeps the Pareto front of its subtrees: accelerators, seconds, seconds to
the first item, memory, renewal of the weights. Sets are merged from small to large. Passes that keep only the most
promising states find a good arrangement first. A pass that thins fronts with stand-ins gives a bound. States that
cannot lead to a better arrangement than the best one found are left out of the next pass, which can then afford
finer fronts. A pass without thinning is exact.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

import numpy as np

from roost.suggesting.arrangement import Arrangement, iteration_seconds
from roost.suggesting.component_sets import ComponentSets, Ways
from roost.suggesting.front_building import FrontBuilding
from roost.suggesting.front_records import Known, OverBudget, Space
from roost.suggesting.fronts import Ruled
from roost.suggesting.problem import Problem
from roost.suggesting.rest_of_iteration import RestOfIteration
from roost.suggesting.state_rows import TIE, StateRows

_CAPS = (40, 80, 160, 320, 640, 1_300, 2_600, 5_200, 16_000, 64_000)  # states of a front, in each pass
_FIRST_CAPS = (15, 45)  # states of a front, in the passes that look for good arrangements first
_LAST_LOOK = 320  # a finer look costs more than it saves
_MOST_PAIRS = 170_000_000  # candidates of all passes: about half a minute
_ROUGH = 60  # states of a front, when several arrangements are wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    tree: Arrangement | None  # None: nothing fits
    seconds: float
    bound: float
    exact: bool
    states: int  # of the largest front
    pairs: int  # candidates that were evaluated


def solve(
    problem: Problem,
    operations: Collection[str] = ("turns", "beside"),
    *,
    limit: float = np.inf,
    most_pairs: int = _MOST_PAIRS,
    check_memory: bool = True,
) -> Solution:
    """The best arrangement that uses only these operations and takes at most `limit` seconds."""
    search = _Search(problem, operations, limit, most_pairs, check_memory)
    bound, exact = search.bound, False
    try:
        exact = any(search.look_around(cap) for cap in _FIRST_CAPS)
        for cap in () if exact else _CAPS:
            exact = search.run(cap)
            bound = max(bound, search.bound)
            if exact or (search.best is None and bound == np.inf):
                break
            if cap <= _LAST_LOOK:
                search.look_around(cap)
    except OverBudget:
        pass
    seconds = search.known.limit
    return Solution(
        tree=search.best,
        seconds=seconds,
        bound=seconds if exact else min(seconds, bound),
        exact=exact,
        states=search.known.largest,
        pairs=most_pairs - search.known.pairs_left,
    )


def resized(problem: Problem, tree: Arrangement, seconds: float) -> float:
    """The seconds of an arrangement of this shape with the best sizes; at most the given ones."""
    search = _Search(problem, ("turns", "beside"), seconds, _MOST_PAIRS, True)
    search.improve(search.without_stand_ins(search.space.sets.ways_of(tree), _ROUGH))
    return search.known.limit


def near_best(problem: Problem, limit: float, most: int, most_pairs: int) -> list[Arrangement]:
    """Some arrangements of different shapes that take at most `limit` seconds, fastest first."""
    search = _Search(problem, ("turns", "beside"), limit, most_pairs, True)
    found: dict[str, Arrangement] = {}
    search.known.limit = limit
    try:
        shapes = search.shapes(search.built(search.all_ways, _ROUGH), 2 * most)
        for shape in shapes:
            search.known.limit, search.best = limit, None
            search.improve(search.built(shape, 5 * _ROUGH))
            if search.best is not None:
                found.setdefault(repr(_flat(search.best)), search.best)
    except OverBudget:
        pass
    return sorted(found.values(), key=lambda tree: iteration_seconds(tree, problem))[:most]


class _Search:
    def __init__(
        self,
        problem: Problem,
        operations: Collection[str],
        limit: float,
        most_pairs: int,
        check_memory: bool,
    ) -> None:
        sets = ComponentSets(problem.profile)
        self.space = Space(
            problem=problem,
            sets=sets,
            rows=StateRows(problem, check_memory),
            rest_of_iteration=RestOfIteration(problem, sets),
            turns="turns" in operations,
            beside="beside" in operations,
        )
        self.known = Known(limit=limit, pairs_left=1 << 40)
        self.all_ways = sets.ways(operations)
        self.best: Arrangement | None = None
        self.bound = max(self.space.rest_of_iteration.rest(0))  # what all components need at least
        if self.space.turns:  # all in turns, each component as fast as it can be, is a first limit
            self.improve(
                FrontBuilding(self.space, self.known, sets.one_after_the_other(), 1_000, only_fastest=True)
            )
        self.known.pairs_left = most_pairs

    def built(self, ways: Ways, cap: int) -> FrontBuilding:
        return FrontBuilding(self.space, self.known, ways, cap)

    def without_stand_ins(self, ways: Ways, cap: int) -> FrontBuilding:
        return FrontBuilding(self.space, self.known, ways, cap, stand_ins=False)

    def look_around(self, cap: int) -> bool:
        """Look for better arrangements among the most promising states: a better limit leaves less to prove.

        True if nothing was thinned out, so that there is nothing left to prove.
        """
        building = self.without_stand_ins(self.all_ways, cap)
        self.improve(building)
        if self.best is not None and not building.exact:
            self.improve(self.without_stand_ins(self.space.sets.ways_of(self.best), 3 * cap))
        return building.exact

    def run(self, cap: int) -> bool:
        """Compute all fronts with at most about `cap` states each. True if none was thinned."""
        T = self.space.rows.T
        building = self.built(self.all_ways, cap)
        self.improve(building)
        self.bound = min((float(building.fronts[key].low[T].min()) for key in building.roots), default=np.inf)
        if building.exact:
            return True
        self._rule_out(building)
        return False

    def shapes(self, building: FrontBuilding, most: int) -> list[Ways]:
        """The shapes of the best arrangements, and of those with the lowest bounds."""
        found: list[Ways] = []
        for tree in islice(building.good_trees(3), 8 * most):
            shape = self.space.sets.ways_of(tree)
            if shape not in found and len(found) < most:
                found.append(shape)
        return found

    def improve(self, building: FrontBuilding) -> None:
        """Take over the best arrangement of a pass."""
        T = self.space.rows.T
        for key in building.roots:
            real = building.fronts[key].real
            least = real[T].min()
            if least <= self.known.limit * (1 + TIE) and least < np.inf:
                close = np.flatnonzero(real[T] <= least * (1 + TIE))
                state = close[real[:T, close].sum(axis=0).argmin()]
                self.known.limit = min(self.known.limit, float(real[T, state]))
                self.best = building.tree(key, int(state))

    def _rule_out(self, building: FrontBuilding) -> None:
        """Find the states that lead to nothing as good as the best arrangement."""
        fronts = building.fronts
        outcome = {key: np.full(front.low.shape[1], np.inf) for key, front in fronts.items()}
        for key in building.roots:
            outcome[key] = fronts[key].low[self.space.rows.T].copy()
        rank = {"free": 0, "first": 1, "below": 2, "turns": 3}
        for key in sorted(fronts, key=lambda key: (-key.members.bit_count(), rank[key.place])):
            front = fronts[key]
            for step in front.steps:
                if step.operation == "leaf":
                    continue
                used = step.stands >= 0
                values = outcome[key][step.stands[used]]
                np.minimum.at(outcome[step.first], step.one[used], values)
                if step.second is not None:
                    np.minimum.at(outcome[step.second], step.two[used], values)
            useless = front.low[:, outcome[key] > self.known.limit * (1 + 2 * TIE)]
            if useless.shape[1] == front.low.shape[1]:
                self.known.hopeless.add(key)
            elif useless.shape[1]:
                self.known.ruled.setdefault(key, []).append(Ruled(useless))


def _flat(tree: Arrangement) -> object:
    """What two arrangements have in common that differ only in how equal operations nest."""
    data = tree.to_dict()

    def sides(data: dict[str, object], kind: str) -> list[object]:
        inner = data.get(kind)
        return (
            [one for side in inner for one in sides(side, kind)] if isinstance(inner, list) else [seen(data)]
        )

    def seen(data: dict[str, object]) -> object:
        for kind in ("turns", "beside"):
            if kind in data:
                parts = sides(data, kind)
                return kind, parts if kind == "turns" else sorted(map(repr, parts))
        return tuple(data.values())

    return seen(data)
