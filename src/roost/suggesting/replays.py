"""Ranks the best few arrangements again by replaying them item by item, with tails if there are any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.suggesting.arrangement import Arrangement, iteration_seconds
from roost.suggesting.problem import Problem
from roost.suggesting.simulator import simulate
from roost.suggesting.solver import near_best

_WITHIN = 1.25  # times the seconds of the best
_FEW = 5
_PAIRS = 12_000_000
_SEEDS = 5
_MOST_ITEMS = 200_000  # that are drawn for one arrangement


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    arrangement: Arrangement
    seconds: float  # by the model
    replayed: float  # by the simulator; the mean of several draws where there are tails

    def to_dict(self) -> dict[str, Any]:
        return {
            "tree": self.arrangement.to_dict(),
            "seconds": self.seconds,
            "replayed": self.replayed,
        }


def replays(problem: Problem, best: Arrangement, tails: Mapping[str, float]) -> tuple[Replay, ...]:
    """The best arrangement and others nearly as fast by the model, the fastest in the replay first."""
    limit = _WITHIN * iteration_seconds(best, problem)
    others = [tree for tree in near_best(problem, limit, _FEW, _PAIRS) if tree != best]
    seeds = max(1, min(_SEEDS, _MOST_ITEMS // problem.profile.batch)) if tails else 1
    found = []
    for tree in [best, *others][:_FEW]:
        played = [simulate(tree, problem, tails=tails, seed=seed).seconds for seed in range(seeds)]
        found.append(
            Replay(
                arrangement=tree,
                seconds=iteration_seconds(tree, problem),
                replayed=sum(played) / len(played),
            )
        )
    return tuple(sorted(found, key=lambda one: one.replayed))
