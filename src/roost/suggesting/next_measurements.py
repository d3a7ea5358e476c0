"""What measuring next would be worth: sizes that were not measured, and what they could change at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from roost.suggesting.arrangement import Arrangement, leaves
from roost.suggesting.problem import Problem, curves_of
from roost.suggesting.profile import ComponentProfile
from roost.suggesting.solver import resized, solve

_MOST_WORK = 5_000_000  # of the solver, for all measurements together: it bounds how long this takes
_WORTH = 1e-3  # of an iteration; smaller gains are not reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A size to measure, and the seconds that an iteration could gain by it at most."""

    component: str
    accelerators: int
    group: str  # empty: any
    gain: float
    complete: bool = True  # False: not all arrangements could be looked at, and the gain may be larger

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def next_measurements(problem: Problem, tree: Arrangement, seconds: float) -> tuple[Measurement, ...]:
    """The measurements that could make an iteration shorter, the most promising first.

    Each size is taken to be as fast as perfect scaling from the nearest measured size would make it. Other sizes
    for the same tree are tried for every one of them, other trees as long as little work was done.
    """
    hopes = []
    for part in problem.profile.components.values():
        for group, size, hoped in _missing(problem, tree, part):
            table = {**part.measured[group], size: hoped}
            better = _with(problem, replace(part, measured={**part.measured, group: table}))
            hopes.append((resized(better, tree, seconds), part.name, group, size, better))
    found, left, limit = [], _MOST_WORK, seconds * (1 - _WORTH)
    for reached, name, group, size, better in sorted(hopes, key=lambda hope: hope[:4]):
        best = solve(better, limit=min(limit, reached), most_pairs=left)
        left = max(0, left - best.pairs)
        gain = seconds - min(best.seconds if best.tree is not None else seconds, reached)
        if gain > seconds * _WORTH:
            complete = best.bound >= best.seconds
            found.append(
                Measurement(component=name, accelerators=size, group=group, gain=gain, complete=complete)
            )
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
    return replace(
        problem,
        profile=replace(profile, components={**profile.components, part.name: part}),
        curves={**problem.curves, part.name: curves_of(part, problem.groups)},
    )
