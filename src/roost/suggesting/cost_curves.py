"""Cost curves: the seconds of a component at each size that it may be given."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class CostCurve:
    """The sizes that are faster than every smaller one, ascending, with their seconds."""

    sizes: np.ndarray
    seconds: np.ndarray
    smallest: int  # measured
    largest: int  # measured, whatever the group has

    def at(self, size: int) -> float | None:
        """The seconds on this many accelerators; None outside the measured range."""
        if not self.smallest <= size <= self.largest or not len(self.sizes):
            return None
        return float(self.seconds[bisect_right(self.sizes, size) - 1])


def cost_curve(measured: Mapping[int, float], width: int, available: int) -> CostCurve:
    """The curve through these measurements, up to the available accelerators.

    Throughput is linear between two measured sizes, and a larger size is never slower than a smaller one.
    """
    known = sorted(measured)
    sizes = np.arange(known[0], min(known[-1], available) + 1, width)
    rates = np.interp(sizes, known, [1 / measured[size] for size in known])
    seconds = 1 / rates
    for size in known:
        if size <= available:
            seconds[(size - known[0]) // width] = measured[size]
    fastest = np.minimum.accumulate(seconds)
    better = np.concatenate(([True], fastest[1:] < fastest[:-1]))[: len(sizes)]
    return CostCurve(sizes[better], fastest[better], known[0], known[-1])
