"""What measuring next would be worth: sizes that were not measured, and what they could change at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from roost.suggesting.arrangement import Arrangement, leaves
from roost.suggesting.cost_curves import cost_curve
from roost.suggesting.problem import Problem
from roost.suggesting.profile import ComponentProfile
from roost.suggesting.solver import solve

_FEW_PAIRS = 3_000_000
_WORTH = 1e-3  # of an iteration; smaller gains are not reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A size to measure, and the seconds that an iteration could gain by it at most."""

    component: str
    accelerators: int
    group: str  # empty: any
    gain: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "component": self.component,
            "accelerators": self.accelerators,
            "group": self.group,
            "gain": self.gain,
        }


def next_measurements(problem: Problem, tree: Arrangement, seconds: float) -> tuple[Measurement, ...]:
    """The measurements that could make an iteration shorter, the most promising first.

    Each size is taken to be as fast as perfect scaling from the nearest measured size would make it.
    """
    found = []
    for name, part in problem.profile.components.items():
        for group, size, hoped in _missing(problem, tree, part):
            table = {**part.measured[group], size: hoped}
            better = _with(problem, replace(part, measured={**part.measured, group: table}))
            best = solve(better, limit=seconds * (1 - _WORTH), most_pairs=_FEW_PAIRS)
            if best.tree is not None:
                gain = seconds - best.seconds
                found.append(Measurement(component=name, accelerators=size, group=group, gain=gain))
    return tuple(sorted(found, key=lambda one: -one.gain))


def _missing(problem: Problem, tree: Arrangement, part: ComponentProfile) -> Iterator[tuple[str, int, float]]:
    """Group, size and hoped-for seconds: larger than measured, smaller than measured, or interpolated."""
    (leaf,) = (one for one in leaves(tree) if one.component == part.name)
    for group, table in part.measured.items():
        room = max((one.total for one in problem.groups if group in ("", one.label)), default=0)
        smallest, largest = min(table), max(table)
        wider = min(2 * largest, room // part.width * part.width)
        if wider > largest:
            yield group, wider, table[largest] * largest / wider
        narrower = max(part.width, smallest // 2 // part.width * part.width)
        if narrower < smallest:
            yield group, narrower, table[smallest] * smallest / narrower
        if leaf.group is not None and group in ("", leaf.group):
            size = leaf.accelerators
            if size not in table and smallest < size < largest:
                below = max(one for one in table if one < size)
                yield group, size, table[below] * below / size


def _with(problem: Problem, part: ComponentProfile) -> Problem:
    """The problem with another profile of one component."""
    profile = problem.profile
    curves = {
        group.label: cost_curve(table, part.width, group.total)
        for group in problem.groups
        if (table := part.measured.get(group.label) or part.measured.get("")) and min(table) <= group.total
    }
    return replace(
        problem,
        profile=replace(profile, components={**profile.components, part.name: part}),
        curves={**problem.curves, part.name: curves},
    )
