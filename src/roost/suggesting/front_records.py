"""Records of a search: fronts with where their states come from, and what holds for all passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roost.suggesting.component_sets import ComponentSets
from roost.suggesting.fronts import Ruled
from roost.suggesting.problem import Problem
from roost.suggesting.rest_of_iteration import RestOfIteration
from roost.suggesting.state_rows import StateRows


class Key(NamedTuple):
    """Names a front. The place is "turns", "below" a turns, "first" of one, or "free"."""

    members: int
    place: str
    partner: int  # the group of the one component of the weights in the set, if it has just one of them


@dataclass(slots=True, eq=False)
class Front:
    low: np.ndarray
    real: np.ndarray
    origin: np.ndarray  # for each state: step, index in the first front, index in the second
    steps: list[Step]


@dataclass(slots=True, eq=False)
class Step:
    """Candidates of a front that come from two others (or from one: then the second is None)."""

    operation: str
    first: Key
    second: Key | None
    one: np.ndarray
    two: np.ndarray
    stands: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))


class OverBudget(Exception):
    pass


@dataclass(slots=True, eq=False)
class Known:
    """What a search knows: it holds for every later pass."""

    limit: float  # seconds of the best arrangement
    pairs_left: int
    largest: int = 0  # states of the largest front
    ruled: dict[Key, list[Ruled]] = field(default_factory=dict)  # states that are of no use
    hopeless: set[Key] = field(default_factory=set)  # fronts of which no state is of use


@dataclass(slots=True, eq=False)
class Space:
    """What stays the same in all passes over a problem."""

    problem: Problem
    sets: ComponentSets
    rows: StateRows
    rest_of_iteration: RestOfIteration
    turns: bool  # whether components may take turns
    beside: bool
