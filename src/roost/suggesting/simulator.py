"""Simulates an arrangement item by item: a judge of the model that knows engines, tails and staleness.

Each component works on its items with one engine for each of its processes. A streaming component starts an item
when its feeders have finished it; any other waits for all of them. Items take equally long on average; a tail
makes some much longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapreplace

import numpy as np

from roost.suggesting.arrangement import Arrangement, Leaf, Turns, iteration_seconds, parts, renewal_seconds
from roost.suggesting.problem import Problem

_ITERATIONS = 12  # of an asynchronous job, to reach its steady pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """When a component had work to do in an iteration, its switch before it included."""

    component: str
    start: float
    end: float
    busy: float  # seconds of work on an average engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A replayed iteration."""

    seconds: float
    model_seconds: float
    error: (
        float  # seconds by which model and simulation may differ without tails: whole items on whole engines
    )
    renewal: float
    staleness: int  # iterations by which items may be older than the weights, at most
    activities: tuple[Activity, ...]


def simulate(
    tree: Arrangement,
    problem: Problem,
    *,
    tails: Mapping[str, float] | None = None,
    seed: int = 0,
    most_stale: int | None = None,
) -> Simulation:
    """One iteration, or the steady pace of an asynchronous job. A tail is the sigma of a log-normal distribution."""
    run = _Run(problem, dict(tails or {}), np.random.default_rng(seed))
    renewal, staleness = renewal_seconds(tree, problem), 0
    if problem.profile.asynchronous:
        seconds, staleness = run.steady(list(parts(tree)), renewal, most_stale)
    else:
        seconds = run.play(tree, 0.0, False) + renewal
    return Simulation(
        seconds=seconds,
        model_seconds=iteration_seconds(tree, problem),
        error=run.error,
        renewal=renewal,
        staleness=staleness,
        activities=tuple(run.activities.values()),
    )


@dataclass(slots=True)
class _Run:
    problem: Problem
    tails: dict[str, float]
    random: np.random.Generator
    finished: dict[str, np.ndarray] = field(default_factory=dict)  # when each item of a component is out
    activities: dict[str, Activity] = field(default_factory=dict)
    error: float = 0.0

    def play(self, tree: Arrangement, start: float, takes_turns: bool) -> float:
        """Run a subtree from `start` on; returns when it ends."""
        if isinstance(tree, Leaf):
            return self._work(tree, start, takes_turns)
        turns = isinstance(tree, Turns)
        end = self.play(tree.first, start, takes_turns or turns)
        return max(end, self.play(tree.second, end if turns else start, takes_turns or turns))

    def _work(self, leaf: Leaf, start: float, takes_turns: bool) -> float:
        profile = self.problem.profile
        part, batch = profile.components[leaf.component], profile.batch
        seconds, engines, pause = part.seconds, 1, 0.0
        if leaf.group is not None:
            found = self.problem.curves[leaf.component][leaf.group].at(leaf.accelerators)
            assert found is not None, leaf
            per_node = self.problem.group(leaf.group).per_node
            seconds, engines = found, leaf.accelerators // max(1, min(part.width, per_node))
            pause = part.switch if takes_turns else 0.0
        feeders = [self.finished[a] for a, b in profile.feeds if b == leaf.component and a in self.finished]
        inputs = np.maximum.reduce(feeders) if feeders else np.zeros(batch)
        engines = min(engines, batch)
        each = seconds * engines / batch * self._lengths(leaf.component, batch)
        if part.streams:
            self.error += seconds * engines / batch * (1 if batch % engines == 0 else 2)
            done = _served(np.maximum(inputs, start), each, engines) + pause
            begun, end = max(start, float(inputs.min())), float(done.max())
        else:
            begun = max(start, float(inputs.max()))
            length = seconds
            if leaf.component in self.tails:
                even = _served(np.zeros(batch), np.full(batch, seconds * engines / batch), engines).max()
                length *= float(_served(np.zeros(batch), each, engines).max()) / float(even)
            end = begun + length + pause
            done = np.full(batch, end)
        self.finished[leaf.component] = done
        self.activities[leaf.component] = Activity(
            component=leaf.component, start=begun, end=end, busy=float(each.sum()) / engines + pause
        )
        return end

    def _lengths(self, name: str, batch: int) -> np.ndarray:
        sigma = self.tails.get(name)
        if not sigma:
            return np.ones(batch)
        return self.random.lognormal(-sigma * sigma / 2, sigma, batch)

    def steady(
        self, stations: list[Arrangement], renewal: float, most_stale: int | None
    ) -> tuple[float, int]:
        """The pace of overlapping iterations, and how many iterations the weights are behind at most."""
        weights = self.problem.profile.weights
        lengths, members = [], []
        for station in stations:
            self.finished = {}  # the inputs of a part come from an earlier iteration
            lengths.append(self.play(station, 0.0, False))
            members.append(set(self.finished))
        source = to = -1
        if weights is not None:
            source = next(i for i, names in enumerate(members) if weights.source in names)
            to = next(i for i, names in enumerate(members) if weights.to in names)
        feeds = self.problem.profile.feeds
        before = [
            [i for i in range(at) if any((a, b) in feeds for a in members[i] for b in members[at])]
            for at in range(len(stations))
        ]
        ends = [[0.0] * len(stations)]
        staleness = 0
        for number in range(_ITERATIONS):
            row: list[float] = []
            for at, length in enumerate(lengths):
                begin = max([ends[-1][at] + (renewal if number else 0.0), *(row[i] for i in before[at])])
                if at == to and most_stale is not None and number > most_stale:
                    begin = max(begin, ends[number - most_stale][source] + renewal)
                if at == to:
                    renewed = sum(one[source] + renewal <= begin for one in ends[1:])
                    staleness = max(staleness, number - renewed)
                row.append(begin + length)
            ends.append(row)
        half = _ITERATIONS // 2
        return (max(ends[-1]) - max(ends[half])) / (_ITERATIONS - half), staleness


def _served(ready: np.ndarray, each: np.ndarray, engines: int) -> np.ndarray:
    """When each item is out: items go, in the order in which they are ready, to the engine that is free first."""
    order = np.argsort(ready, kind="stable")
    if (each == each[0]).all():  # then the engines take items in turn
        rounds = -(-len(order) // engines)
        lanes = np.full(rounds * engines, np.inf)
        lanes[: len(order)] = ready[order]
        work = np.arange(rounds)[:, None] * each[0]
        done = (np.maximum.accumulate(lanes.reshape(rounds, engines) - work, axis=0) + work + each[0]).ravel()
        done = done[: len(order)]
    else:
        free = [0.0] * engines
        done = np.empty(len(order))
        for place, (at, length) in enumerate(zip(ready[order].tolist(), each[order].tolist(), strict=True)):
            end = max(at, free[0]) + length
            heapreplace(free, end)
            done[place] = end
    finished = np.empty(len(order))
    finished[order] = done
    return finished
