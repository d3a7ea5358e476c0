"""Reads the arrangement out of a plan, so that a present placement can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from roost.planning.plan import Plan
from roost.suggesting.arrangement import Arrangement, Beside, Leaf, Turns, cost_of, feeds
from roost.suggesting.problem import Problem

Held = frozenset[tuple[int, int]]  # node, accelerator


def present_arrangement(plan: Plan, problem: Problem) -> tuple[Arrangement | None, str]:
    """The arrangement that a plan amounts to, or why there is none."""
    held: dict[str, Held] = {}
    tree_leaves: dict[str, Leaf] = {}
    for name, part in problem.profile.components.items():
        if name not in plan.components:
            return None, f"{name} is not placed"
        held[name] = frozenset(
            (place.cluster_node_rank, number)
            for place in plan.components[name].members
            if place.holds_accelerators
            for number in place.hardware
        )
        if not part.needs_accelerators:
            tree_leaves[name] = Leaf(component=name)
            held[name] = frozenset()
            continue
        labels = [label for label in problem.curves[name] if _on(plan, label, held[name])]
        size = len(held[name])
        if not labels or problem.curves[name][labels[0]].at(size) is None:
            return None, f"{name} was not measured on {size} accelerators like these"
        tree_leaves[name] = Leaf(component=name, accelerators=size, group=labels[0])
    holders = [name for name, leaf in tree_leaves.items() if leaf.group is not None]
    tree = _decomposed(holders, tree_leaves, held, problem) if holders else None
    for name, leaf in tree_leaves.items():
        if leaf.group is None and (tree is not None or not holders):
            tree = leaf if tree is None else _inserted(tree, tree_leaves[name], problem)
            holders.append(name)
    return tree, "" if tree else "its components share accelerators in a way that is neither turns nor beside"


def _inserted(tree: Arrangement, leaf: Leaf, problem: Problem) -> Arrangement | None:
    """The tree with a component that holds no accelerator: it runs where that takes the least time."""
    able = [one for one in _insertions(tree, leaf) if not _feeds_backwards(one, problem)]
    return min(able, key=lambda one: cost_of(one, problem).seconds, default=None)


def _insertions(tree: Arrangement, leaf: Leaf) -> Iterator[Arrangement]:
    for kind in (Beside, Turns):
        yield kind(first=tree, second=leaf)
        yield kind(first=leaf, second=tree)
    if not isinstance(tree, Leaf):
        for side in _insertions(tree.first, leaf):
            yield type(tree)(first=side, second=tree.second)
        for side in _insertions(tree.second, leaf):
            yield type(tree)(first=tree.first, second=side)


def _feeds_backwards(tree: Arrangement, problem: Problem) -> bool:
    if isinstance(tree, Leaf):
        return False
    below = _feeds_backwards(tree.first, problem) or _feeds_backwards(tree.second, problem)
    return below or feeds(tree.second, tree.first, problem)


def _on(plan: Plan, label: str, held: Held) -> bool:
    group = plan.inventory.groups.get(label)
    return group is None or {node for node, _ in held} <= set(group.node_ranks)


def _decomposed(
    names: list[str], tree_leaves: dict[str, Leaf], held: dict[str, Held], problem: Problem
) -> Arrangement | None:
    if len(names) == 1:
        return tree_leaves[names[0]]

    def overlap(a: str, b: str) -> bool:
        return not held[a].isdisjoint(held[b])

    for kind, linked in ((Beside, overlap), (Turns, lambda a, b: not overlap(a, b))):
        blocks = _connected(names, linked)
        if len(blocks) > 1:
            ordered = _in_order(blocks, problem)
            made = [_decomposed(block, tree_leaves, held, problem) for block in ordered or ()]
            if not made or None in made:
                return None
            tree: Arrangement = made[0]  # type: ignore[assignment]
            for part in made[1:]:
                tree = kind(first=tree, second=part)  # type: ignore[arg-type]
            return tree
    return None


def _connected(names: list[str], linked: Callable[[str, str], bool]) -> list[list[str]]:
    blocks: list[list[str]] = []
    for name in names:
        touching = [block for block in blocks if any(linked(name, other) for other in block)]
        blocks = [block for block in blocks if block not in touching]
        blocks.append([*(other for block in touching for other in block), name])
    return blocks


def _in_order(blocks: list[list[str]], problem: Problem) -> list[list[str]] | None:
    """The blocks so that none feeds an earlier one; None if they feed each other in a circle."""
    left, ordered = list(blocks), []

    def feeders(block: list[str]) -> set[str]:
        return {source for source, to in problem.profile.feeds if to in block}.difference(block)

    while left:
        ready = next((block for block in left if feeders(block).isdisjoint(chain.from_iterable(left))), None)
        if ready is None:
            return None
        ordered.append(ready)
        left.remove(ready)
    return ordered
