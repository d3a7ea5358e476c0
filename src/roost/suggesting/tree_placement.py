"""The placement of an arrangement: what goes under `component_placement`, ready for `roost.plan`."""

from __future__ import annotations

from typing import Any

from roost.suggesting.arrangement import Arrangement, Beside, Leaf, Turns, cost_of, leaves, parts
from roost.suggesting.problem import WHOLE, Problem

Ranks = dict[str, tuple[str, int, int]]  # by component: group, first rank, number


def ranks_of(tree: Arrangement, problem: Problem) -> Ranks:
    """Where each component with accelerators sits in its group.

    Parts that run beside each other follow one another, the widest first, so that no process leaves its node.
    Members of a `turns` start at the same accelerator.
    """
    found: Ranks = {}
    _place(tree, problem, {group.label: 0 for group in problem.groups}, False, found)
    return found


def _place(tree: Arrangement, problem: Problem, start: dict[str, int], below: bool, found: Ranks) -> None:
    if isinstance(tree, Leaf):
        if tree.group is not None:
            found[tree.component] = (tree.group, start[tree.group], tree.accelerators)
    elif isinstance(tree, Turns):
        _place(tree.first, problem, start, True, found)
        _place(tree.second, problem, start, True, found)
    elif isinstance(tree, Beside):
        weights = problem.profile.weights
        renewed = {weights.source, weights.to} if below and weights else set()
        ordered = sorted(
            parts(tree),
            key=lambda part: (
                -_widest(part, problem),
                renewed.isdisjoint(leaf.component for leaf in leaves(part)),
            ),
        )
        at = dict(start)
        for part in ordered:
            _place(part, problem, at, below, found)
            taken = cost_of(part, problem, below).accelerators
            at = {label: first + taken[label] for label, first in at.items()}


def _widest(tree: Arrangement, problem: Problem) -> int:
    widths = problem.widths
    return max(widths.get(leaf.component, 1) for leaf in leaves(tree))


def placement_of(tree: Arrangement, problem: Problem) -> dict[str, Any]:
    ranks = ranks_of(tree, problem)
    return {name: _rule(name, ranks, problem) for name in problem.profile.components}


def _rule(name: str, ranks: Ranks, problem: Problem) -> Any:
    if name not in ranks:
        return {"node_group": "node", "placement": "0"}
    label, first, count = ranks[name]
    processes = count // min(problem.widths[name], problem.group(label).per_node)
    text = f"{first}-{first + count - 1}" if count > 1 else str(first)
    if processes < count:
        text += f":0-{processes - 1}" if processes > 1 else ":0"
    return text if label == WHOLE else {"node_group": label, "placement": text}
