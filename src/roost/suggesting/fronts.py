"""Pareto fronts that may be thinned without losing the bound.

A state is a column of numbers, of which less is better in every row. Each state of a front has two columns:
`real`, which some arrangement reaches, and `low`, which is at most that of every state it stands for. A front
that was never thinned has them equal.
"""

from __future__ import annotations

import numpy as np

from roost.suggesting.thinning import Selection, Thinning

_FEW = 300  # candidates that are compared one by one
_CELLS = 1 << 16


def select(low: np.ndarray, real: np.ndarray, thinning: Thinning) -> Selection:
    """The best of these candidates: all that none other is better than, or as many stand-ins as the thinning allows."""
    alive = np.arange(low.shape[1])
    varied = [row for row in range(len(low)) if low[row].min() < low[row].max()]
    if len(varied) < 3:
        return thinning.of(low, alive, *_staircase(low, real, varied))
    if len(alive) > _FEW:
        alive = alive[~_beaten(low, real, varied)]
    if len(alive) <= _FEW:
        few = low[:, alive]
        return thinning.of(low, alive, *_compared(few, few if real is low else real[:, alive], varied))
    every = np.arange(len(alive))
    return thinning.of(low, alive, every, every)


def _staircase(low: np.ndarray, real: np.ndarray, varied: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Two rows: sort by one, keep what improves the other."""
    count = low.shape[1]
    x, y = (low[varied[0]], low[varied[-1]]) if varied else (np.zeros(count), np.zeros(count))
    order = np.lexsort((y, x))
    best = np.minimum.accumulate(y[order])
    better = np.concatenate(([True], best[1:] < best[:-1]))
    kept = order[better]
    stands = np.empty(count, dtype=np.int32)
    stands[order] = np.cumsum(better) - 1
    if real is not low:
        sure = real[:, kept]
        for row in range(len(low)):
            if row not in varied and count:
                sure = sure[:, sure[row] <= low[row, 0]]
        sx, sy = (sure[varied[0]], sure[varied[-1]]) if varied else (sure[0], sure[0])
        steps = np.lexsort((sy, sx))
        reached = np.concatenate(([np.inf], np.minimum.accumulate(sy[steps])))
        stands[reached[np.searchsorted(sx[steps], x, side="right")] < y] = -1
    else:
        gone = np.ones(count, dtype=bool)
        gone[kept] = False
        stands[gone] = -1
    stands[kept] = np.arange(len(kept))
    return kept, stands


def _compared(low: np.ndarray, real: np.ndarray, varied: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Any number of rows: compare every candidate with every other."""
    order = np.lexsort(low[varied[::-1]])
    ordered = low[:, order]
    covers = np.tri(len(order), dtype=bool).T  # [i, j]: state i comes before j, and is nowhere worse
    for row in varied:
        covers &= ordered[row, :, None] <= ordered[row, None, :]
    first = covers.argmax(axis=0)  # in this order it is not covered itself
    best = first == np.arange(len(order))
    place = np.cumsum(best) - 1
    if real is low:
        stands = np.where(best, place, -1)
    else:
        sure = np.ones((best.sum(), len(order)), dtype=bool)
        reached = real[:, order[best]]
        for row in range(len(low)):
            sure &= reached[row, :, None] <= ordered[row, None, :]
        stands = np.where(sure.any(axis=0) & ~best, -1, place[first])
    back = np.empty(len(order), dtype=np.int32)
    back[order] = stands
    return order[best], back


def _beaten(low: np.ndarray, real: np.ndarray, varied: list[int]) -> np.ndarray:
    """Which candidates are surely worse than a real one, by cells of a grid: what is in a lower cell is better."""
    value, axes = varied[0], varied[1:]
    per_axis = max(4, int(_CELLS ** (1 / len(axes))))
    codes, sure_codes, shape = [], [], []
    shift = []
    for row in axes:
        values = low[row]
        distinct = np.unique(values[:: max(1, len(values) // 500)])
        exact = len(distinct) <= min(16, per_axis) and bool(np.isin(values, distinct).all())
        if exact:
            codes.append(np.searchsorted(distinct, values))
            sure_codes.append(np.searchsorted(distinct, real[row]))
            shape.append(len(distinct) + 1)
        else:
            least, width = values.min(), (values.max() - values.min()) / (per_axis - 1)
            codes.append(((values - least) / width).astype(np.int64))
            above = np.clip(np.floor((real[row] - least) / width) + 1, 0, per_axis)
            sure_codes.append(above.astype(np.int64))
            shape.append(per_axis + 1)
        shift.append(0 if exact else 1)
    table = np.full(shape, np.inf)
    flat = np.ravel_multi_index(sure_codes, shape)
    np.minimum.at(table.ravel(), flat, real[value])
    for axis in range(len(axes)):
        np.minimum.accumulate(table, axis=axis, out=table)
    if not any(shift):  # a candidate must not beat itself
        return np.asarray(low[value] > table.ravel()[np.ravel_multi_index(codes, shape)])
    # A real state counts in the cell above its own, so every candidate in that cell is worse in this row.
    return np.asarray(low[value] >= table.ravel()[np.ravel_multi_index(codes, shape)])


class Ruled:
    """A region of states that are ruled out: everything that is nowhere less than one of these corners."""

    def __init__(self, corners: np.ndarray) -> None:
        self.floor = corners.min(axis=1)
        varied = [row for row in range(len(corners)) if self.floor[row] < corners[row].max()] or [0]
        self.value, self.axes = varied[0], varied[1:]
        steps = 400 if len(self.axes) < 3 else max(6, int(_CELLS ** (1 / len(self.axes))))
        self.ticks = []
        for row in self.axes:
            ticks = np.unique(corners[row])
            self.ticks.append(
                ticks[np.linspace(0, len(ticks) - 1, min(steps, len(ticks))).round().astype(int)]
            )
        self.table = np.full([len(ticks) for ticks in self.ticks] or [1], np.inf)
        cells = [
            np.searchsorted(ticks, corners[row]) for row, ticks in zip(self.axes, self.ticks, strict=True)
        ]
        flat = (
            np.ravel_multi_index(cells, self.table.shape) if cells else np.zeros(corners.shape[1], dtype=int)
        )
        np.minimum.at(self.table.ravel(), flat, corners[self.value])
        for axis in range(len(self.axes)):
            np.minimum.accumulate(self.table, axis=axis, out=self.table)

    def covers(self, states: np.ndarray) -> np.ndarray:
        inside: np.ndarray = (states >= self.floor[:, None]).all(axis=0)
        rows = zip(self.axes, self.ticks, strict=True)
        cells = [np.searchsorted(ticks, states[row, inside], side="right") - 1 for row, ticks in rows]
        flat = np.ravel_multi_index(cells, self.table.shape) if cells else np.zeros(inside.sum(), dtype=int)
        inside[inside] = states[self.value, inside] >= self.table.ravel()[flat]
        return inside
