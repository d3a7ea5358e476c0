"""Looks for arrangements that contradict a bound: among all of them where they are few, else downhill from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from roost.suggesting.checker import Checker, Tree, splits

_TIE = 1e-9
_TRIES = 4_000


class Counterexamples:
    def __init__(self, checker: Checker) -> None:
        self.checker = checker

    def least(self) -> float:
        """The least seconds of all arrangements, tried one by one."""
        every = self.every_tree(list(self.checker.profile.components))
        return min(self.checker.value(tree) for tree in every if self.checker.fits(tree))

    def count(self) -> int:
        return self.count_trees(tuple(self.checker.profile.components), {})

    def every_tree(self, names: Sequence[str]) -> Iterator[Tree]:
        if len(names) == 1:
            for label in self.checker.labels:
                for size in self.checker.tables.get((names[0], label), {}):
                    yield {"component": names[0], "accelerators": size, "group": label}
            if not self.checker.profile.components[names[0]].measured:
                yield {"component": names[0], "accelerators": 0, "group": None}
            return
        for first, second in splits(names, self.checker.profile.feeds):
            for a in self.every_tree(first):
                for b in self.every_tree(second):
                    yield {"turns": [a, b]}
                    yield {"beside": [a, b]}

    def count_trees(self, names: tuple[str, ...], known: dict[tuple[str, ...], int]) -> int:
        if names not in known:
            if len(names) == 1:
                known[names] = (
                    sum(len(self.checker.tables.get((names[0], label), ())) for label in self.checker.labels)
                    or 1
                )
            else:
                known[names] = sum(
                    2 * self.count_trees(first, known) * self.count_trees(second, known)
                    for first, second in splits(names, self.checker.profile.feeds)
                )
        return known[names]

    def neighbours(self, tree: Tree) -> Iterator[Tree]:
        """Trees that differ in one place: another size, another group, another operation, another order."""
        if "component" in tree:
            for (name, label), table in self.checker.tables.items():
                if name == tree["component"]:
                    sizes = list(table)
                    near = [
                        size
                        for size in sizes
                        if abs(size - tree["accelerators"]) <= 2 * self.checker.width(name)
                    ]
                    for size in dict.fromkeys([*near, *sizes[:: max(1, len(sizes) // 24)], sizes[-1]]):
                        yield {"component": name, "accelerators": size, "group": label}
            return
        ((kind, (first, second)),) = tree.items()
        yield {"beside" if kind == "turns" else "turns": [first, second]}
        yield {kind: [second, first]}
        for side, other in ((first, second), (second, first)):
            if "component" not in side:  # turn the tree around this branch
                ((_, (x, y)),) = side.items()
                for outer, within in product(("turns", "beside"), repeat=2):
                    yield {outer: [x, {within: [y, other]}]}
                    yield {outer: [{within: [x, other]}, y]}
                    yield {outer: [{within: [other, x]}, y]}
        for changed in self.neighbours(first):
            yield {kind: [changed, second]}
        for changed in self.neighbours(second):
            yield {kind: [first, changed]}

    def improved(self, tree: Tree, below: float) -> Tree | None:
        """A tree with a value below this, found by walking downhill from the given one; None if none is found."""
        value, tries = self.checker.value(tree), 0
        if value < below:
            return tree
        while True:
            best = None
            for other in self.neighbours(tree):
                tries += 1
                if tries > _TRIES:
                    return None
                if next(self.checker.backward(other), None) is None and self.checker.fits(other):
                    found = self.checker.value(other)
                    if found < below:
                        return other
                    if found < value * (1 - _TIE):
                        best, value = other, found
            if best is None:
                return None
            tree = best
