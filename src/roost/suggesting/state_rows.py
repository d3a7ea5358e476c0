"""States of subtrees as columns of numbers: the rows, and the arithmetic of the model on many columns at once.

The rows are accelerators by group, seconds T, seconds to the first item f, resident memory R and peak memory P of
the groups whose memory could be short, and the seconds W of renewing the weights.
"""

from __future__ import annotations

import numpy as np

from roost.suggesting.problem import Problem

TIE = 1e-9  # relative; arrangements as close as this are equally fast


class StateRows:
    def __init__(self, problem: Problem, check_memory: bool) -> None:
        self.problem = problem
        self.labels = [group.label for group in problem.groups]
        self.totals = np.array([group.total for group in problem.groups], dtype=float)
        self.limited = [
            place for place in range(len(self.labels)) if check_memory and self._can_be_short(place)
        ]
        self.most = np.array([problem.groups[place].memory_gib for place in self.limited], dtype=float)
        count, kept = len(self.labels), len(self.limited)
        self.T, self.f = count, count + 1
        self.R, self.P = slice(count + 2, count + 2 + kept), slice(count + 2 + kept, count + 2 + 2 * kept)
        self.W = count + 2 + 2 * kept

    def _can_be_short(self, place: int) -> bool:
        """Whether the memory of a group could ever be short."""
        group, profile = self.problem.groups[place], self.problem.profile
        parts = [
            profile.components[name] for name, curves in self.problem.curves.items() if group.label in curves
        ]
        held = sum(max(part.memory_gib, part.resident_gib) for part in parts)
        return group.memory_gib is not None and held > group.memory_gib

    def leaf(self, name: str, place: int | None, pays_switch: bool, only_fastest: bool) -> np.ndarray:
        """The states of a component on a group, or without accelerators."""
        part, batch = self.problem.profile.components[name], self.problem.profile.batch
        sizes, seconds, switch = np.zeros(1), np.array([part.seconds]), 0.0
        if place is not None:
            curve = self.problem.curves[name][self.labels[place]]
            sizes, seconds, switch = curve.sizes, curve.seconds, part.switch if pays_switch else 0.0
            if only_fastest:
                sizes, seconds = sizes[-1:], seconds[-1:]
        rows = np.zeros((self.W + 1, len(sizes)))
        rows[self.T] = seconds + switch
        rows[self.f] = (seconds / batch if part.streams else seconds) + switch
        if place is not None:
            rows[place] = sizes
            if place in self.limited:
                where = self.limited.index(place)
                rows[self.R][where], rows[self.P][where] = part.resident_gib, part.memory_gib
        return rows

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Which states neither need more accelerators nor more memory than there are."""
        fits = np.ones(rows.shape[1], dtype=bool)
        for place, total in enumerate(self.totals):
            fits &= rows[place] <= total
        for row, most in zip(range(self.P.start, self.P.stop), self.most, strict=True):
            fits &= rows[row] <= most * (1 + TIE)
        return fits

    def merged(self, operation: str, fed: bool, width: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The states of `turns` or `beside` of two subtrees, column by column, by the table of the model."""
        rows = np.empty(a.shape)
        T, f, R, P = self.T, self.f, self.R, self.P
        if operation == "turns":
            rows[:T] = np.maximum(a[:T], b[:T])
            if width > 1:
                rows[:T] = np.ceil(rows[:T] / width) * width
            rows[T] = a[T] + b[T]
            rows[f] = a[T] + b[f]
            rows[R] = a[R] + b[R]
            rows[P] = np.maximum(a[P] + b[R], b[P] + a[R])
        else:
            rows[:T] = a[:T] + b[:T]
            rows[T] = np.maximum(a[T] + b[f], a[f] + b[T]) if fed else np.maximum(a[T], b[T])
            rows[f] = a[f] + b[f] if fed else np.maximum(a[f], b[f])
            rows[R] = np.maximum(a[R], b[R])
            rows[P] = np.maximum(a[P], b[P])
        rows[self.W] = a[self.W] + b[self.W]
        return rows
