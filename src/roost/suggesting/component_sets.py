"""Sets of components, as the bits of a number, and the ways to make a set of two others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from roost.suggesting.arrangement import Arrangement, Leaf, Turns
from roost.suggesting.profile import Profile


class Way(NamedTuple):
    operation: str  # "turns" or "beside"
    first: int
    second: int


Ways = dict[int, list[Way]]  # by set; a set of one component needs none


class ComponentSets:
    def __init__(self, profile: Profile) -> None:
        self.names = list(profile.components)
        self.everything = (1 << len(self.names)) - 1
        index = {name: bit for bit, name in enumerate(self.names)}
        self.needs = [0] * len(self.names)  # the components that feed each
        for source, to in profile.feeds:
            self.needs[index[to]] |= 1 << index[source]
        self.pair = 0  # the two components of the weights
        if profile.weights is not None:
            self.pair = 1 << index[profile.weights.source] | 1 << index[profile.weights.to]

    def fed(self, first: int, second: int) -> bool:
        """Whether some component of the first set feeds one of the second."""
        return any(self.needs[bit] & first for bit in bits(second))

    def named(self, members: int) -> list[str]:
        return [self.names[bit] for bit in bits(members)]

    def ways(self, operations: Collection[str]) -> Ways:
        """All sets that can be subtrees, each with all ways to make it."""
        found: Ways = {}
        todo = [self.everything]
        while todo:
            members = todo.pop()
            if members in found:
                continue
            found[members] = []
            first = (members - 1) & members
            while first:
                second = members ^ first
                if not self.fed(second, first):
                    found[members] += [
                        Way(operation, first, second)
                        for operation in operations
                        # Without feeding, `beside` is the same in either order.
                        if operation == "turns" or first < second or self.fed(first, second)
                    ]
                    todo += [first, second]
                first = (first - 1) & members
        return found

    def one_after_the_other(self) -> Ways:
        """All components in turns, in an order in which none feeds an earlier one."""
        found: Ways = {}
        done = 0
        while done != self.everything:
            bit = next(one for one in bits(self.everything ^ done) if not self.needs[one] & ~done)
            found[1 << bit] = []
            if done:
                found[done | 1 << bit] = [Way("turns", done, 1 << bit)]
            done |= 1 << bit
        return found

    def ways_of(self, tree: Arrangement) -> Ways:
        """The shape of an arrangement: one way for each of its sets."""
        if isinstance(tree, Leaf):
            return {1 << self.names.index(tree.component): []}
        a, b = self.ways_of(tree.first), self.ways_of(tree.second)
        way = Way("turns" if isinstance(tree, Turns) else "beside", max(a), max(b))
        return {**a, **b, max(a) | max(b): [way]}


def bits(members: int) -> Iterator[int]:
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low
