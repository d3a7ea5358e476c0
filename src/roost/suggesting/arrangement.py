"""Arrangements: trees that say which components take turns, and which run beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roost.errors import ConfigurationError
from roost.suggesting.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    component: str
    accelerators: int = 0
    group: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"component": self.component, "accelerators": self.accelerators, "group": self.group}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Both use the same accelerators, `first` before `second`."""

    first: Arrangement
    second: Arrangement

    def to_dict(self) -> dict[str, Any]:
        return {"turns": [self.first.to_dict(), self.second.to_dict()]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Each uses accelerators of its own, at the same time."""

    first: Arrangement
    second: Arrangement

    def to_dict(self) -> dict[str, Any]:
        return {"beside": [self.first.to_dict(), self.second.to_dict()]}


Arrangement = Leaf | Turns | Beside


def leaves(tree: Arrangement) -> Iterator[Leaf]:
    if isinstance(tree, Leaf):
        yield tree
    else:
        yield from leaves(tree.first)
        yield from leaves(tree.second)


def parts(tree: Arrangement) -> Iterator[Arrangement]:
    """The parts of nested `beside`s that are none themselves."""
    if isinstance(tree, Beside):
        yield from parts(tree.first)
        yield from parts(tree.second)
    else:
        yield tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a subtree needs and takes; accelerators and memory by group."""

    accelerators: Mapping[str, int]
    seconds: float
    first_item: float
    resident: Mapping[str, float]
    peak: Mapping[str, float]


def cost_of(tree: Arrangement, problem: Problem, takes_turns: bool = False) -> Cost:
    """The cost of a subtree; `takes_turns` if it is below a `turns`."""
    if isinstance(tree, Leaf):
        return _leaf_cost(tree, problem, takes_turns)
    turns = isinstance(tree, Turns)
    a = cost_of(tree.first, problem, takes_turns or turns)
    b = cost_of(tree.second, problem, takes_turns or turns)
    labels = [group.label for group in problem.groups]
    if turns:
        widths = problem.widths
        widest = max((widths.get(leaf.component, 1) for leaf in leaves(tree)), default=1)
        most = {label: max(a.accelerators[label], b.accelerators[label]) for label in labels}
        return Cost(
            accelerators={label: -(-count // widest) * widest for label, count in most.items()},
            seconds=a.seconds + b.seconds,
            first_item=a.seconds + b.first_item,
            resident={label: a.resident[label] + b.resident[label] for label in labels},
            peak={
                label: max(a.peak[label] + b.resident[label], b.peak[label] + a.resident[label])
                for label in labels
            },
        )
    if feeds(tree.first, tree.second, problem):
        seconds = max(a.seconds + b.first_item, a.first_item + b.seconds)
        first_item = a.first_item + b.first_item
    else:
        seconds, first_item = max(a.seconds, b.seconds), max(a.first_item, b.first_item)
    return Cost(
        accelerators={label: a.accelerators[label] + b.accelerators[label] for label in labels},
        seconds=seconds,
        first_item=first_item,
        resident={label: max(a.resident[label], b.resident[label]) for label in labels},
        peak={label: max(a.peak[label], b.peak[label]) for label in labels},
    )


def _leaf_cost(leaf: Leaf, problem: Problem, takes_turns: bool) -> Cost:
    part = problem.profile.components[leaf.component]
    seconds, switch = part.seconds, 0.0
    if leaf.group is not None:
        found = problem.curves[leaf.component][leaf.group].at(leaf.accelerators)
        assert found is not None, leaf
        seconds, switch = found, part.switch if takes_turns else 0.0
    first_item = seconds / problem.profile.batch if part.streams else seconds
    labels = [group.label for group in problem.groups]
    return Cost(
        accelerators={label: leaf.accelerators * (label == leaf.group) for label in labels},
        seconds=seconds + switch,
        first_item=first_item + switch,
        resident={label: part.resident_gib * (label == leaf.group) for label in labels},
        peak={label: part.memory_gib * (label == leaf.group) for label in labels},
    )


def feeds(first: Arrangement, second: Arrangement, problem: Problem) -> bool:
    """Whether some component of the first feeds one of the second."""
    receivers = [leaf.component for leaf in leaves(second)]
    return any(
        (leaf.component, other) in problem.profile.feeds for leaf in leaves(first) for other in receivers
    )


def renewal_seconds(tree: Arrangement, problem: Problem) -> float:
    """What renewing the weights takes: less where the two components take turns on the same accelerators."""
    weights = problem.profile.weights
    if weights is None:
        return 0.0
    pair = {weights.source, weights.to}
    node = tree
    while not isinstance(node, Leaf):
        inside = [
            part for part in (node.first, node.second) if pair <= {leaf.component for leaf in leaves(part)}
        ]
        if not inside:
            break
        node = inside[0]
    groups = [leaf.group for leaf in leaves(node) if leaf.component in pair]
    same = groups[0] is not None and groups[0] == groups[-1]
    return weights.together if isinstance(node, Turns) and same else weights.apart


def iteration_seconds(tree: Arrangement, problem: Problem) -> float:
    """The value of an arrangement: the seconds of one iteration."""
    if problem.profile.asynchronous:
        longest = max(cost_of(part, problem).seconds for part in parts(tree))
    else:
        longest = cost_of(tree, problem).seconds
    return longest + renewal_seconds(tree, problem)


def read_arrangement(data: Any) -> Arrangement:
    """The arrangement in plain data: a tree, or a suggestion that has one."""
    if isinstance(data, dict) and "tree" in data:
        return read_arrangement(data["tree"])
    if isinstance(data, dict) and isinstance(data.get("component"), str):
        size, group = data.get("accelerators", 0), data.get("group")
        if isinstance(size, int) and (group is None or isinstance(group, str)):
            return Leaf(component=data["component"], accelerators=size, group=group)
    for key, kind in (("turns", Turns), ("beside", Beside)):
        sides = data.get(key) if isinstance(data, dict) else None
        if isinstance(sides, list) and len(sides) == 2:
            return kind(first=read_arrangement(sides[0]), second=read_arrangement(sides[1]))
    raise ConfigurationError(
        code="RS105",
        what="this is not an arrangement",
        remedy="write {component, accelerators, group}, {turns: [A, B]} or {beside: [A, B]}",
    )
