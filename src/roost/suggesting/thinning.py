"""Thins a front that is too large: stand-ins take the place of states that are close to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_NEARLY_LONGEST = 0.4  # boxes at least this long, relative to the longest, are halved together


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The candidates to keep, and which kept one stands for each candidate (-1: a real one is better)."""

    kept: np.ndarray
    low: np.ndarray
    stands: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Thinning:
    cap: int  # states that may be kept
    worth: np.ndarray  # of one unit of each row, in seconds of an iteration, about
    estimates: Callable[[np.ndarray], np.ndarray]  # the seconds of the iterations that states lead to, about

    def of(self, low: np.ndarray, alive: np.ndarray, kept: np.ndarray, stands: np.ndarray) -> Selection:
        """The selection of these kept ones among the alive; if there are too many, one for each box."""
        everyone = np.full(low.shape[1], -1, dtype=np.int32)
        chosen = alive[kept]
        if len(chosen) <= self.cap:
            everyone[alive] = stands
            return Selection(chosen, low[:, chosen], everyone)
        states = low[:, chosen]
        box = _boxes(states * self.worth[:, None], self.cap)
        order = np.lexsort((self.estimates(states), box))  # the most promising state of a box represents it
        starts = np.flatnonzero(np.concatenate(([True], np.diff(box[order]) > 0)))
        merged = np.minimum.reduceat(states[:, order], starts, axis=1)
        everyone[alive] = np.where(stands >= 0, box[stands], -1)
        return Selection(chosen[order[starts]], merged, everyone)


def _boxes(states: np.ndarray, most: int) -> np.ndarray:
    """The number of a box for each state. The longest boxes are halved until there are as many as allowed."""
    differs = states.min(axis=1) < states.max(axis=1)
    states = states[differs] if differs.any() else states[:1]
    order = np.arange(states.shape[1])  # the states of a box follow each other
    starts = np.zeros(1, dtype=np.int64)  # of each box in that order
    while len(starts) < most:
        ordered, every = states[:, order], np.arange(len(starts))
        least, greatest = (
            np.minimum.reduceat(ordered, starts, axis=1),
            np.maximum.reduceat(ordered, starts, axis=1),
        )
        axis = (greatest - least).argmax(axis=0)
        bottom, top = least[axis, every], greatest[axis, every]
        lengths = top - bottom
        longest = np.argsort(-lengths)[: most - len(starts)]
        halved = np.zeros(len(starts), dtype=bool)
        halved[longest] = (lengths[longest] > 0) & (lengths[longest] >= _NEARLY_LONGEST * lengths[longest[0]])
        if not halved.any():
            break
        middle = np.where((bottom + top) / 2 < top, (bottom + top) / 2, bottom)  # rounding may reach the top
        sizes = np.diff([*starts, len(order)])
        values = ordered[np.repeat(axis, sizes), np.arange(len(order))]
        number = 2 * np.repeat(every, sizes) + (
            np.repeat(halved, sizes) & (values > np.repeat(middle, sizes))
        )
        order, number = order[np.argsort(number, kind="stable")], np.sort(number)
        starts = np.flatnonzero(np.concatenate(([True], np.diff(number) > 0)))
    box = np.empty(len(order), dtype=np.int32)
    box[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    return box
