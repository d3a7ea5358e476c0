"""Checks a suggestion without the solver: the tree and the placement by their own arithmetic, the bound by others.

It uses the profile and the groups of the problem, and nothing of the solver.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from roost.config.ranks import RankSyntaxError, parse_ranks
from roost.suggesting.problem import Problem

_TIE = 1e-9

Tree = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _State:
    n: tuple[int, ...]
    T: float
    f: float
    R: tuple[float, ...]
    P: tuple[float, ...]


class Checker:
    """The model's arithmetic, written a second time."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.profile = problem, problem.profile
        self.groups = problem.groups
        self.labels = [group.label for group in self.groups]
        self.tables: dict[tuple[str, str], dict[int, float]] = {}
        for name, part in self.profile.components.items():
            for group in self.groups:
                if measured := part.table(group.label):
                    self.tables[name, group.label] = _table(measured, part.width, group.total)

    # -- the arithmetic of the model ---------------------------------------------------------------------

    def names(self, tree: Tree) -> list[str]:
        if "component" in tree:
            return [tree["component"]]
        (branches,) = tree.values()
        return [name for branch in branches for name in self.names(branch)]

    def state(self, tree: Tree, turns: bool = False) -> _State:
        if "component" in tree:
            return self._leaf(tree, turns)
        ((kind, (first, second)),) = tree.items()
        a, b = self.state(first, turns or kind == "turns"), self.state(second, turns or kind == "turns")
        if kind == "turns":
            k = max(self.width(name) for name in self.names(tree))
            return _State(
                tuple(-(-max(x, y) // k) * k for x, y in zip(a.n, b.n, strict=True)),
                a.T + b.T,
                a.T + b.f,
                tuple(x + y for x, y in zip(a.R, b.R, strict=True)),
                tuple(max(p + s, q + r) for p, q, r, s in zip(a.P, b.P, a.R, b.R, strict=True)),
            )
        fed = any((x, y) in self.profile.feeds for x in self.names(first) for y in self.names(second))
        return _State(
            tuple(x + y for x, y in zip(a.n, b.n, strict=True)),
            max(a.T + b.f, a.f + b.T) if fed else max(a.T, b.T),
            a.f + b.f if fed else max(a.f, b.f),
            tuple(map(max, a.R, b.R)),
            tuple(map(max, a.P, b.P)),
        )

    def _leaf(self, leaf: Tree, turns: bool) -> _State:
        part = self.profile.components[leaf["component"]]
        held = leaf["group"] is not None
        t = self.tables[part.name, leaf["group"]][leaf["accelerators"]] if held else part.seconds
        pause = part.switch if turns and held else 0.0
        where = [label == leaf["group"] for label in self.labels]
        return _State(
            tuple(leaf["accelerators"] * here for here in where),
            t + pause,
            (t / self.profile.batch if part.streams else t) + pause,
            tuple(part.resident_gib * here for here in where),
            tuple(part.memory_gib * here for here in where),
        )

    def width(self, name: str) -> int:
        part = self.profile.components[name]
        return part.width if part.measured else 1

    def value(self, tree: Tree) -> float:
        if not self.profile.asynchronous:
            return self.state(tree).T + self._renewal(tree)
        return max(self.state(part).T for part in _flat(tree)) + self._renewal(tree)

    def _renewal(self, tree: Tree) -> float:
        weights = self.profile.weights
        if weights is None:
            return 0.0
        while True:
            ((kind, branches),) = tree.items()
            inner = [branch for branch in branches if {weights.source, weights.to} <= set(self.names(branch))]
            if not inner:
                break
            tree = inner[0]
        groups = {
            leaf["group"] for leaf in leaves_of(tree) if leaf["component"] in (weights.source, weights.to)
        }
        return (
            weights.together if kind == "turns" and len(groups) == 1 and None not in groups else weights.apart
        )

    # -- problems of a tree ------------------------------------------------------------------------------

    def problems(self, tree: Tree) -> Iterator[str]:
        names = self.names(tree)
        if sorted(names) != sorted(self.profile.components):
            yield f"the tree holds {', '.join(sorted(names))}, not each component once"
            return
        for leaf in leaves_of(tree):
            name, label, size = leaf["component"], leaf["group"], leaf["accelerators"]
            if not self.profile.components[name].measured:
                if label is not None or size:
                    yield f"{name} needs no accelerator"
            elif size not in self.tables.get((name, str(label)), {}):
                yield f"{name} cannot be on {size} accelerators of {label!r}"
        yield from self.backward(tree)

    def backward(self, tree: Tree) -> Iterator[str]:
        if "component" in tree:
            return
        ((_, (first, second)),) = tree.items()
        for x in self.names(second):
            for y in self.names(first):
                if (x, y) in self.profile.feeds:
                    yield f"{y} stands before {x}, which feeds it"
        yield from self.backward(first)
        yield from self.backward(second)

    def overflows(self, state: _State) -> Iterator[str]:
        for group, n, peak in zip(self.groups, state.n, state.P, strict=True):
            if n > group.total:
                yield f"{n} accelerators of {group.label!r}, which has {group.total}"
            if group.memory_gib is not None and peak > group.memory_gib * (1 + _TIE):
                yield f"{peak:g} GiB per accelerator of {group.label!r}, which has {group.memory_gib:g}"

    def fits(self, tree: Tree) -> bool:
        return next(self.overflows(self.state(tree)), None) is None

    def stands(self, tree: Tree) -> bool:
        """Whether a tree is an arrangement that fits."""
        return next(self.problems(tree), None) is None and self.fits(tree)

    # -- the placement -----------------------------------------------------------------------------------

    def misplaced(self, tree: Tree, placement: Mapping[str, Any]) -> Iterator[str]:
        """What a placement does otherwise than its tree says."""
        if set(placement) != set(self.profile.components):
            yield f"the placement holds {', '.join(sorted(placement))}, not each component once"
            return
        held: dict[str, frozenset[tuple[str, int]]] = {}
        for leaf in leaves_of(tree):
            name, label, size = leaf["component"], leaf["group"], leaf["accelerators"]
            rule = placement[name]
            where, text = (
                (rule.get("node_group"), str(rule.get("placement")))
                if isinstance(rule, Mapping)
                else ("cluster", str(rule))
            )
            if where != (label or "node"):
                yield f"{name} is placed on {where!r}, not on {label or 'node'!r}"
                continue
            held[name] = frozenset()
            if label is None:
                if text != "0":
                    yield f"{name} needs no accelerator, and is not one process on node 0"
                continue
            try:
                (segment,) = parse_ranks(text).segments
            except (RankSyntaxError, ValueError):
                yield f"{name}: {text!r} is not one range of accelerators"
                continue
            ranks = list(segment.resources) if segment.resources is not None else []
            held[name] = frozenset((label, rank) for rank in ranks)
            group = self.problem.group(label)
            each = min(self.width(name), group.per_node)
            if len(ranks) != size or segment.num_processes * each != size or ranks[-1] >= group.total:
                yield f"{name}: {text!r} of {label!r} is not {size} accelerators, {each} for each process"
            elif any(rank // group.per_node != (rank + each - 1) // group.per_node for rank in ranks[::each]):
                yield f"{name}: a process of {text!r} leaves its node"
        if len(held) == len(self.profile.components):
            yield from self._shared(tree, held)

    def _shared(self, tree: Tree, held: Mapping[str, frozenset[tuple[str, int]]]) -> Iterator[str]:
        if "component" in tree:
            return
        ((kind, (first, second)),) = tree.items()
        if kind == "beside":
            for x, y in product(self.names(first), self.names(second)):
                if held[x] & held[y]:
                    yield f"{x} and {y} run beside each other, and are placed on the same accelerators"
        else:
            starts = [_first_of(self.names(side), held) for side in (first, second)]
            for label in starts[0].keys() & starts[1].keys():
                if starts[0][label] != starts[1][label]:
                    names = f"{', '.join(self.names(first))} and {', '.join(self.names(second))}"
                    yield f"{names} take turns, and do not start at the same accelerator of {label!r}"
        yield from self._shared(first, held)
        yield from self._shared(second, held)


def _first_of(names: Iterable[str], held: Mapping[str, frozenset[tuple[str, int]]]) -> dict[str, int]:
    """The first accelerator of each group that these components hold."""
    found: dict[str, int] = {}
    for label, rank in sorted(place for name in names for place in held[name]):
        found.setdefault(label, rank)
    return found


def splits(
    names: Sequence[str], feeds: Container[tuple[str, str]]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """All ways to part these components in two of which the second feeds none of the first."""
    for choice in range(1, (1 << len(names)) - 1):
        first = tuple(name for bit, name in enumerate(names) if choice >> bit & 1)
        second = tuple(name for name in names if name not in first)
        if not any((x, y) in feeds for x in second for y in first):
            yield first, second


def _flat(tree: Tree) -> Iterator[Tree]:
    if "beside" in tree:
        for branch in tree["beside"]:
            yield from _flat(branch)
    else:
        yield tree


def leaves_of(tree: Tree) -> Iterator[Tree]:
    if "component" in tree:
        yield tree
        return
    (branches,) = tree.values()
    for branch in branches:
        yield from leaves_of(branch)


def _table(measured: Mapping[int, float], width: int, most: int) -> dict[int, float]:
    """The seconds at every size, straight from the model's words."""
    known = sorted(measured)
    table: dict[int, float] = {}
    least = float("inf")
    for size in range(known[0], min(known[-1], most) + 1, width):
        below = max(one for one in known if one <= size)
        t = measured[below]
        if below != size:
            above = min(one for one in known if one > size)
            part = (size - below) / (above - below)
            t = 1 / ((1 - part) / measured[below] + part / measured[above])
        least = min(least, t)
        table[size] = least
    return table
