"""Which components hold the memory of an accelerator when it is fullest."""

from __future__ import annotations

from roost.suggesting.arrangement import Arrangement, Leaf, Turns, cost_of
from roost.suggesting.problem import Problem


def peak_holders(tree: Arrangement, problem: Problem, label: str) -> list[str]:
    """The components whose memory adds up to the peak on a group."""
    if isinstance(tree, Leaf):
        return [tree.component] if problem.profile.components[tree.component].memory_gib else []
    a, b = cost_of(tree.first, problem), cost_of(tree.second, problem)
    if not isinstance(tree, Turns):
        return peak_holders(tree.first if a.peak[label] >= b.peak[label] else tree.second, problem, label)
    if a.peak[label] + b.resident[label] >= b.peak[label] + a.resident[label]:
        return [*peak_holders(tree.first, problem, label), *_residents(tree.second, problem, label)]
    return [*peak_holders(tree.second, problem, label), *_residents(tree.first, problem, label)]


def _residents(tree: Arrangement, problem: Problem, label: str) -> list[str]:
    """The components whose resident memory adds up to the most on a group."""
    if isinstance(tree, Leaf):
        held = tree.group == label and problem.profile.components[tree.component].resident_gib
        return [tree.component] if held else []
    first, second = (_residents(side, problem, label) for side in (tree.first, tree.second))
    if isinstance(tree, Turns):
        return [*first, *second]
    more = cost_of(tree.first, problem).resident[label] >= cost_of(tree.second, problem).resident[label]
    return first if more else second


def listed(names: list[str]) -> str:
    """`rollout needs`, or `rollout and actor together need`."""
    if len(names) == 1:
        return f"{names[0]} needs"
    return f"{', '.join(names[:-1])} and {names[-1]} together need"
