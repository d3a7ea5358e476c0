"""A bound on every arrangement of a problem, at any size, without the solver.

For each set of components it takes the least seconds on each number of accelerators, and, apart from these, the
least seconds to the first item. A real subtree has one size and one shape for both, so the two together are at
most what any arrangement reaches. On large clusters accelerators are counted in units, rounded down for each
component, which only makes the bound lower. Of the memory it knows which two components cannot take turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from roost.suggesting.checker import splits
from roost.suggesting.problem import Problem

_TIE = 1e-9
_STEPS = tuple(3 << doubling for doubling in range(14))  # parts of the accelerators of a group: 3, 6, 12, ...
_MOST_WORK = 120_000  # slices that are compared

Tables = Mapping[tuple[str, str], Mapping[int, float]]  # seconds by size, of each component on each group


class _TooMuchWork(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Relaxed:
    bound: float  # at most the seconds that were asked about
    tree: dict[str, Any] | None  # of the arrangement that the bound comes from; it may not fit, or be slower


def relaxed(problem: Problem, tables: Tables, seconds: float) -> Relaxed:
    """The largest bound that can be had with little work."""
    work, found = [_MOST_WORK], Relaxed(min(seconds, _simple_bound(problem, tables)), None)
    for steps in _STEPS:
        cases = [
            Relaxation(problem, tables, steps, seconds, work, together) for together in renewals(problem)
        ]
        try:
            best = min(cases, key=lambda case: case.least())
        except _TooMuchWork:
            break
        proven = best.least() >= seconds * (1 - _TIE)
        tree = None if proven else best.tree() or found.tree
        found = Relaxed(max(found.bound, min(seconds, best.least())), tree)
        if proven or all(unit == best.finest for unit in best.units):
            break
    return found


def _simple_bound(problem: Problem, tables: Tables) -> float:
    """No component is faster than its fastest size, and together they need accelerators for so many seconds."""
    profile, total = problem.profile, sum(group.total for group in problem.groups)
    fastest, area = 0.0, 0.0
    for name, part in profile.components.items():
        sizes = [one for group in problem.groups for one in tables.get((name, group.label), {}).items()]
        if part.measured and sizes:
            fastest = max(fastest, min(t for _, t in sizes))
            area += min(size * t for size, t in sizes)
        else:
            fastest = max(fastest, part.seconds)
    weights = profile.weights
    renewal = min(weights.together, weights.apart) if weights else 0.0
    return max(fastest, area / total if total else 0.0) + renewal


def renewals(problem: Problem) -> tuple[bool | None, ...]:
    """Whether the weights go to a component that takes turns with their source; None if there are none."""
    return (None,) if problem.profile.weights is None else (True, False)


class Relaxation:
    def __init__(
        self,
        problem: Problem,
        tables: Tables,
        steps: int,
        limit: float,
        work: list[int],
        together: bool | None,
    ) -> None:
        self.problem, self.profile, self.tables = problem, problem.profile, tables
        self.work, self.together = work, together
        weights = self.profile.weights
        self.renewal = 0.0
        if weights is not None:
            self.renewal = weights.together if together else weights.apart
        self.limit = limit * (1 + _TIE) - self.renewal
        widths = [part.width for part in self.profile.components.values() if part.measured]
        self.finest = min(widths, default=1)
        self.units = [self.finest * -(-group.total // (self.finest * steps)) or 1 for group in problem.groups]
        self.shape = tuple(
            group.total // unit + 1 for group, unit in zip(problem.groups, self.units, strict=True)
        )
        self.of = cache(self._of)

    def least(self) -> float:
        seconds, _ = self.of(frozenset(self.profile.components), False)
        return float(seconds.flat[-1]) + self.renewal

    def _of(self, names: frozenset[str], below: bool) -> tuple[np.ndarray, np.ndarray]:
        """The least seconds of a set, and to its first item, on at most so many units of each group."""
        if len(names) == 1:
            return self._leaf(next(iter(names)), below)
        if below and not self.profile.asynchronous and not any(self._switch(name) for name in names):
            return self.of(names, False)
        best = np.full(self.shape, np.inf)
        first = np.full(self.shape, np.inf)
        for a, b in self._splits(names):
            if self._may_take_turns(a, b):
                self._turns(a, b, best, first)
            if self._may_be_beside(a, b):
                self._beside(a, b, below, best, first)
        return best, first

    def _splits(self, names: frozenset[str]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        for a, b in splits(sorted(names), self.profile.feeds):
            yield frozenset(a), frozenset(b)

    def _switch(self, name: str) -> float:
        part = self.profile.components[name]
        return part.switch if part.measured else 0.0

    def _leaf(self, name: str, below: bool) -> tuple[np.ndarray, np.ndarray]:
        part = self.profile.components[name]
        item = 1 / self.profile.batch if part.streams else 1.0
        if not part.measured:
            return np.full(self.shape, part.seconds), np.full(self.shape, part.seconds * item)
        best = np.full(self.shape, np.inf)
        for axis, (group, unit) in enumerate(zip(self.problem.groups, self.units, strict=True)):
            if group.memory_gib is not None and part.memory_gib > group.memory_gib * (1 + _TIE):
                continue
            for size, t in self.tables.get((name, group.label), {}).items():
                cell = tuple(size // unit if at == axis else 0 for at in range(len(self.shape)))
                best[cell] = min(best[cell], t)
        for axis in range(len(self.shape)):
            np.minimum.accumulate(best, axis=axis, out=best)
        pause = part.switch if below else 0.0
        return best + pause, best * item + pause

    def _turns(self, a: frozenset[str], b: frozenset[str], best: np.ndarray, first: np.ndarray) -> None:
        (ta, _), (tb, fb) = self.of(a, True), self.of(b, True)
        usable = self._usable_in_turns(a | b)
        np.minimum(best, (ta + tb)[usable], out=best)
        np.minimum(first, (ta + fb)[usable], out=first)

    def _usable_in_turns(self, names: frozenset[str]) -> tuple[np.ndarray, ...]:
        """For all units of each group, those that components which take turns can use."""
        widest = max((self.profile.components[x].width for x in names if self._held(x)), default=1)
        shape = zip(self.shape, self.units, strict=True)
        return np.ix_(*(self._rounded(count, unit, widest) for count, unit in shape))

    def _rounded(self, count: int, unit: int, widest: int) -> np.ndarray:
        """Units rounded down to whole multiples of the largest width."""
        units = np.arange(count)
        return units if widest % unit else units // (widest // unit) * (widest // unit)

    def _fed(self, a: frozenset[str], b: frozenset[str], below: bool) -> bool:
        loose = self.profile.asynchronous and not below
        return not loose and any((x, y) in self.profile.feeds for x in a for y in b)

    def _beside(
        self, a: frozenset[str], b: frozenset[str], below: bool, best: np.ndarray, first: np.ndarray
    ) -> None:
        (ta, fa), (tb, fb) = self.of(a, below), self.of(b, below)
        fed = self._fed(a, b, below)
        whole = len(a) + len(b) == len(self.profile.components)
        one, two = self._steps(ta, fa), self._steps(tb, fb)
        if len(two) < len(one):  # go through the sizes of the one with fewer
            one, ta, fa, tb, fb = two, tb, fb, ta, fa
        self.work[0] -= len(one) * (1 + best.size // 4_000)
        if self.work[0] < 0:
            raise _TooMuchWork
        for cell in one:
            if whole:  # only all accelerators matter
                here = tuple(slice(count - 1, count) for count in self.shape)
                rest = tuple(
                    slice(count - 1 - at, count - at) for at, count in zip(cell, self.shape, strict=True)
                )
            else:
                here = tuple(slice(at, None) for at in cell)
                rest = tuple(slice(0, count - at) for at, count in zip(cell, self.shape, strict=True))
            t, f = ta[cell], fa[cell]
            if fed:
                np.minimum(best[here], np.maximum(t + fb[rest], f + tb[rest]), out=best[here])
                np.minimum(first[here], f + fb[rest], out=first[here])
            else:
                np.minimum(best[here], np.maximum(t, tb[rest]), out=best[here])
                np.minimum(first[here], np.maximum(f, fb[rest]), out=first[here])

    def _steps(self, t: np.ndarray, f: np.ndarray) -> list[tuple[int, ...]]:
        """The sizes at which a set is not too slow, and better than with a unit less of any group."""
        useful = t <= self.limit
        for axis in range(t.ndim):
            less, more = (
                tuple(part if at == axis else slice(None) for at in range(t.ndim))
                for part in (slice(None, -1), slice(1, None))
            )
            useful[more] &= (t[more] < t[less]) | (f[more] < f[less])
        return [tuple(int(at) for at in cell) for cell in np.argwhere(useful)]

    # -- the arrangement that the bound comes from -------------------------------------------------------

    def tree(self) -> dict[str, Any] | None:
        last = tuple(count - 1 for count in self.shape)
        return self._rebuilt(frozenset(self.profile.components), False, last)

    def _rebuilt(self, names: frozenset[str], below: bool, cell: tuple[int, ...]) -> dict[str, Any] | None:
        """A subtree with the least seconds of a set on these units."""
        if len(names) == 1:
            return self._rebuilt_leaf(next(iter(names)), cell)
        wanted = self.of(names, below)[0][cell] * (1 + _TIE)
        for a, b in self._splits(names):
            if self._may_take_turns(a, b):
                axes = zip(self._usable_in_turns(names), cell, strict=True)
                used = tuple(int(axis.ravel()[at]) for axis, at in axes)
                if self.of(a, True)[0][used] + self.of(b, True)[0][used] <= wanted:
                    return _pair("turns", self._rebuilt(a, True, used), self._rebuilt(b, True, used))
            if self._may_be_beside(a, b):
                (ta, fa), (tb, fb) = self.of(a, below), self.of(b, below)
                fed = self._fed(a, b, below)
                for one in self._steps(ta, fa):
                    two = tuple(at - mine for at, mine in zip(cell, one, strict=True))
                    if min(two) < 0:
                        continue
                    t = max(ta[one] + fb[two], fa[one] + tb[two]) if fed else max(ta[one], tb[two])
                    if t <= wanted:
                        return _pair("beside", self._rebuilt(a, below, one), self._rebuilt(b, below, two))
        return None

    def _rebuilt_leaf(self, name: str, cell: tuple[int, ...]) -> dict[str, Any] | None:
        if not self._held(name):
            return {"component": name, "accelerators": 0, "group": None}
        able = [
            (t, size, group.label)
            for group, unit, at in zip(self.problem.groups, self.units, cell, strict=True)
            for size, t in self.tables.get((name, group.label), {}).items()
            if size <= at * unit or size // unit == at == 0
        ]
        if not able:
            return None
        _, size, label = min(able)
        return {"component": name, "accelerators": size, "group": label}

    # -- what cannot take turns --------------------------------------------------------------------------

    def _held(self, name: str) -> bool:
        return bool(self.profile.components[name].measured)

    def _labels(self, name: str) -> set[str]:
        return {group.label for group in self.problem.groups if self.tables.get((name, group.label))}

    def _may_be_beside(self, a: frozenset[str], b: frozenset[str]) -> bool:
        return not (self.together and self._joins_weights(a, b))

    def _may_take_turns(self, a: frozenset[str], b: frozenset[str]) -> bool:
        """Whether memory and the renewal of the weights that is looked at allow two sets to take turns."""
        for x, y in product(a, b):
            both = self._labels(x) | self._labels(y)
            if len(both) == 1 and self._held(x) and self._held(y):
                (group,) = (one for one in self.problem.groups if one.label in both)
                p, q = self.profile.components[x], self.profile.components[y]
                need = max(p.memory_gib + q.resident_gib, q.memory_gib + p.resident_gib)
                if group.memory_gib is not None and need > group.memory_gib * (1 + _TIE):
                    return False
        weights = self.profile.weights
        if weights is None or not self._joins_weights(a, b):
            return True
        source, to = self._labels(weights.source), self._labels(weights.to)
        # On one group they are together, on none in common they are apart.
        return bool(source & to) if self.together else not (source and to and len(source | to) == 1)

    def _joins_weights(self, a: frozenset[str], b: frozenset[str]) -> bool:
        weights = self.profile.weights
        if weights is None:
            return False
        pair = {weights.source, weights.to}
        return pair <= a | b and not pair <= a and not pair <= b


def _pair(kind: str, first: Any, second: Any) -> dict[str, Any] | None:
    return None if first is None or second is None else {kind: [first, second]}
