"""The timeline of one iteration: who runs on which accelerators, when, and where nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from roost.config.ranks import ranges
from roost.suggesting.arrangement import Arrangement
from roost.suggesting.problem import Problem
from roost.suggesting.simulator import Simulation
from roost.suggesting.tree_placement import ranks_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    start: float
    end: float
    component: str  # empty: a bubble
    reason: str = ""  # of a bubble


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Accelerators that hold the same components, or a component without accelerators."""

    label: str
    has_accelerators: bool
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    seconds: float
    components: tuple[str, ...]
    lanes: tuple[Lane, ...]


def timeline(tree: Arrangement, problem: Problem, simulation: Simulation) -> Timeline:
    ranks = ranks_of(tree, problem)
    active = {one.component: one for one in simulation.activities}
    lanes = []
    for group in problem.groups:
        here = {name: (first, count) for name, (label, first, count) in ranks.items() if label == group.label}
        cuts = sorted({edge for first, count in here.values() for edge in (first, first + count)})
        for start, stop in pairwise(cuts):
            names = [name for name, (first, count) in here.items() if first <= start < first + count]
            bars = [Bar(start=active[name].start, end=active[name].end, component=name) for name in names]
            if bars:
                label = f"{group.label} {ranges(range(start, stop))}"
                lanes.append(Lane(label=label, has_accelerators=True, bars=_filled(bars, simulation)))
    for name in problem.profile.components:
        if name not in ranks:
            bar = Bar(start=active[name].start, end=active[name].end, component=name)
            lanes.append(Lane(label="no accelerator", has_accelerators=False, bars=(bar,)))
    return Timeline(
        seconds=simulation.seconds, components=tuple(problem.profile.components), lanes=tuple(lanes)
    )


def _filled(bars: list[Bar], simulation: Simulation) -> tuple[Bar, ...]:
    """The bars in order of time, with a bubble wherever there is none."""
    filled: list[Bar] = []
    now, tiny = 0.0, 1e-6 * simulation.seconds
    for bar in sorted(bars, key=lambda bar: bar.start):
        if bar.start - now > tiny:
            filled.append(Bar(start=now, end=bar.start, component="", reason=f"waits to run {bar.component}"))
        filled.append(bar)
        now = max(now, bar.end)
    renewing = max(now, simulation.seconds - simulation.renewal)
    for start, end, reason in (
        (now, renewing, "waits for the end of the iteration"),
        (renewing, simulation.seconds, "the weights are renewed"),
    ):
        if end - start > tiny:
            filled.append(Bar(start=start, end=end, component="", reason=reason))
    return tuple(filled)
