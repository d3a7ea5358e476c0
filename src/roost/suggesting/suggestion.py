"""`suggest`: the arrangement with the shortest iteration, as a value with its bound, placement and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from roost.placement.strategies import inventory_of
from roost.planning.plan import Plan
from roost.suggesting.arrangement import Arrangement, Leaf, cost_of, iteration_seconds, leaves
from roost.suggesting.checker import Checker
from roost.suggesting.infeasible import infeasible, smallest_arrangement
from roost.suggesting.memory_holders import listed, peak_holders
from roost.suggesting.next_measurements import Measurement, next_measurements
from roost.suggesting.present import present_arrangement
from roost.suggesting.problem import Problem, pose
from roost.suggesting.profile import read_profile
from roost.suggesting.replays import Replay, replays
from roost.suggesting.solver import solve
from roost.suggesting.tree_placement import placement_of
from roost.suggesting.verification import Verification, verify

_FEW_PAIRS = 4_000_000  # for questions beside the main one


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another arrangement. Without seconds it is not possible here, and `why` says why."""

    name: str
    seconds: float | None
    tree: Arrangement | None = None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        tree = self.tree and self.tree.to_dict()
        return {"name": self.name, "seconds": self.seconds, "tree": tree, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The best arrangement that was found, its time, and the bound that proves it."""

    problem: Problem
    arrangement: Arrangement
    seconds: float
    bound: float
    gap: float  # relative; 0 when proven
    placement: Mapping[str, Any]
    accelerators_used: int
    alternatives: tuple[Alternative, ...]
    binding: tuple[str, ...]

    @property
    def tree(self) -> dict[str, Any]:
        return self.arrangement.to_dict()

    def verify(self) -> Verification:
        """Check everything again without the solver; raises if anything does not hold."""
        return verify(
            self.problem,
            self.tree,
            seconds=self.seconds,
            bound=self.bound,
            gap=self.gap,
            accelerators=self.accelerators_used,
            placement=self.placement,
        )

    @property
    def measured(self) -> dict[str, str]:
        """For each component whether its seconds were `measured` at this size or `interpolated`."""
        return {leaf.component: _source(leaf, self.problem) for leaf in leaves(self.arrangement)}

    def worth_measuring(self) -> tuple[Measurement, ...]:
        """The sizes that could make an iteration shorter if they were measured, the most promising first."""
        return next_measurements(self.problem, self.arrangement, self.seconds)

    def replays(self, tails: Mapping[str, float] | None = None) -> tuple[Replay, ...]:
        """This and other arrangements nearly as fast, replayed item by item, the fastest in the replay first.

        A tail is the sigma of the log-normal distribution of the lengths of a component's items.
        """
        return replays(self.problem, self.arrangement, dict(tails or {}))

    def with_arrangement(self, tree: Arrangement) -> Suggestion:
        """The same answer with another arrangement. The bound stays; the gap says how much slower this one is."""
        seconds = iteration_seconds(tree, self.problem)
        return replace(
            self,
            arrangement=tree,
            seconds=seconds,
            gap=max(0.0, 1 - self.bound / seconds),
            placement=placement_of(tree, self.problem),
            accelerators_used=sum(cost_of(tree, self.problem).accelerators.values()),
            binding=tuple(_binding(self.problem, tree, seconds)),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "bound": self.bound,
            "gap": self.gap,
            "tree": self.tree,
            "placement": dict(self.placement),
            "accelerators_used": self.accelerators_used,
            "measured": self.measured,
            "alternatives": [one.to_dict() for one in self.alternatives],
            "binding": list(self.binding),
        }


def suggest(profile: Any, inventory: Any, *, groups: Any = None, present: Plan | None = None) -> Suggestion:
    """The arrangement with the shortest iteration, with a bound that proves it or says how far it may be off.

    `profile` is a path, a dict or a `DictConfig`; `groups` names the node groups to use. `present` is a plan
    to compare with.
    """
    problem = pose(read_profile(profile), inventory_of(inventory), groups)
    found = solve(problem)
    tree = found.tree or smallest_arrangement(problem)  # the search may end before it meets one that fits
    if tree is None:
        raise infeasible(problem)
    seconds = iteration_seconds(tree, problem)
    gap = 0.0 if found.exact else max(0.0, 1 - found.bound / seconds)
    return Suggestion(
        problem=problem,
        arrangement=tree,
        seconds=seconds,
        bound=seconds * (1 - gap),
        gap=gap,
        placement=placement_of(tree, problem),
        accelerators_used=sum(cost_of(tree, problem).accelerators.values()),
        alternatives=tuple(_alternatives(problem, present)),
        binding=tuple(_binding(problem, tree, seconds)),
    )


def _alternatives(problem: Problem, present: Plan | None) -> list[Alternative]:
    found = []
    for name, operation in (("all in turns", "turns"), ("all beside", "beside")):
        best = solve(problem, (operation,), most_pairs=_FEW_PAIRS)
        if best.tree is None:
            found.append(Alternative(name=name, seconds=None, why="it does not fit"))
        else:
            found.append(Alternative(name=name, seconds=best.seconds, tree=best.tree))
    if present is not None:
        tree, why = present_arrangement(present, problem)
        checker = Checker(problem)
        if tree is not None and (over := next(checker.overflows(checker.state(tree.to_dict())), "")):
            tree, why = None, f"it does not fit: it needs {over}"
        seconds = None if tree is None else iteration_seconds(tree, problem)
        found.append(Alternative(name="present placement", seconds=seconds, tree=tree, why=why))
    return found


def _binding(problem: Problem, tree: Arrangement, seconds: float) -> list[str]:
    """What limits the answer: a measured range, accelerators, memory."""
    limits = []
    for leaf in leaves(tree):
        if leaf.group is not None:
            curve = problem.curves[leaf.component][leaf.group]
            if leaf.accelerators == curve.largest and curve.largest < problem.group(leaf.group).total:
                limits.append(f"{leaf.component}: its largest measured size, {curve.largest}")
    used = cost_of(tree, problem)
    for group in problem.groups:
        if group.total and used.accelerators[group.label] == group.total:
            limits.append(f"accelerators: all {group.total} of {group.label} are used")
    if any(group.memory_gib is not None for group in problem.groups):
        without = solve(problem, limit=seconds, most_pairs=_FEW_PAIRS, check_memory=False)
        if without.tree is not None and without.seconds < seconds * (1 - 1e-9):
            peak = cost_of(without.tree, problem).peak
            for group in problem.groups:
                if group.memory_gib is not None and peak[group.label] > group.memory_gib:
                    who = listed(peak_holders(without.tree, problem, group.label))
                    limits.append(
                        f"memory: {who} {peak[group.label]:.4g} of {group.memory_gib:g} GiB "
                        f"in an arrangement that would take {without.seconds:.4g} s"
                    )
    return limits


def _source(leaf: Leaf, problem: Problem) -> str:
    if leaf.group is None:
        return "measured"
    table = problem.profile.components[leaf.component].table(leaf.group)
    # A size that is slower than a smaller one is not kept, so the size of a leaf is where its seconds come from.
    return "measured" if leaf.accelerators in table else "interpolated"
